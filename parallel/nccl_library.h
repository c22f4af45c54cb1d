// NCCL, loaded when it is first needed: weft starts on machines without it, and takes the version
// that lies there. The few functions needed, with the types of NCCL's stable interface.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

struct CUstream_st;
struct ncclComm;

namespace weft::parallel {

struct NcclId {
  std::array<char, 128> bytes{};
};

// The part of ncclConfig_t that NCCL 2.28 has. NCCL reads as much as `version` says.
struct NcclConfig {
  static constexpr int kUnset = -2147483647 - 1;
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22800;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
  int n_channels_per_net_peer = kUnset;
  int nvlink_centric_sched = kUnset;
};

// ncclResult_t, ncclDataType_t and ncclRedOp_t, as far as weft names them.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclUint8 = 1;
inline constexpr int kNcclFloat16 = 6;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0;

inline constexpr int kOldestNccl = 22800;

// "2.28.9" of NCCL's own number, 22809 (before 2.9 it was 2804 for 2.8.4).
std::string nccl_version_text(int code);

class NcclLibrary {
 public:
  // Throws Error where the library is missing, older than kOldestNccl, or lacks a function. Sums in
  // NVLink switches (NVLS) are turned off unless the user has set NCCL_NVLS_ENABLE: they hold
  // multicast groups of the whole host's switches, which a job that is killed may leave behind.
  explicit NcclLibrary(const std::string& file = "libnccl.so.2");

  int version() const { return version_; }
  // What NCCL says of a status, and of the latest failure in this process.
  std::string error_text(int status) const;

  // Each returns ncclResult_t.
  int (*get_unique_id)(NcclId* id);
  int (*comm_init_rank_config)(ncclComm** comm, int ranks, NcclId id, int rank, NcclConfig* config);
  int (*comm_get_async_error)(ncclComm* comm, int* status);
  int (*comm_finalize)(ncclComm* comm);
  int (*comm_destroy)(ncclComm* comm);
  int (*comm_abort)(ncclComm* comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* in, void* out, size_t n, int type, int op, ncclComm* comm,
                    CUstream_st* stream);
  int (*all_gather)(const void* in, void* out, size_t n, int type, ncclComm* comm,
                    CUstream_st* stream);
  int (*reduce_scatter)(const void* in, void* out, size_t n, int type, int op, ncclComm* comm,
                        CUstream_st* stream);
  int (*broadcast)(const void* in, void* out, size_t n, int type, int root, ncclComm* comm,
                   CUstream_st* stream);
  int (*send)(const void* data, size_t n, int type, int peer, ncclComm* comm, CUstream_st* stream);
  int (*recv)(void* data, size_t n, int type, int peer, ncclComm* comm, CUstream_st* stream);

 private:
  template <class Function>
  void find(Function& function, const char* name);

  std::unique_ptr<void, void (*)(void*)> library_;
  std::string file_;
  int version_ = 0;
  const char* (*get_error_string_)(int status) = nullptr;
  const char* (*get_last_error_)(ncclComm* comm) = nullptr;
};

}  // namespace weft::parallel
