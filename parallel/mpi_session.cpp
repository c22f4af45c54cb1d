// Starting and ending MPI, and waiting for it without holding a core.
#include "parallel/mpi_session.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "parallel/patience.h"

namespace weft::parallel {
namespace {

// Patience's sleeps of 20 µs need a timer that is not rounded up by the kernel's default of 50 µs.
constexpr unsigned long kTimerSlackNs = 1000;

// A setting of Open MPI, unless the user or mpirun has made it.
void prefer(const char* parameter, const char* value) {
  setenv(fmt::format("OMPI_MCA_{}", parameter).c_str(), value, 0);
}

// Open MPI starts a daemon beside a process that no launcher started, which costs time and needs
// its programs installed; one that never spawns others does without.
void isolate_singleton() {
  if (!started_by_launcher()) prefer("ess_singleton_isolated", "1");
}

// Some containers forbid to read another process's memory. Open MPI then reports an error for each
// message instead of copying through shared memory.
bool may_read_processes() {
  char from = 1;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

// Between ranks of a host (the transport is called vader, from Open MPI 5 on sm). A token's
// activations should leave without the receiver's help, while it computes. Large messages advance
// by one pipeline each time we look, and we look seldom.
void tune_shared_memory() {
  prefer("btl_vader_eager_limit", "32768");
  prefer("btl_sm_eager_limit", "32768");
  prefer("pml_ob1_send_pipeline_depth", "32");
  if (!may_read_processes()) prefer("btl_vader_single_copy_mechanism", "none");
}

}  // namespace

bool started_by_launcher() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK") ||
         std::getenv("PMI_RANK") || std::getenv("PMI_FD");
}

void check(int mpi_status, const char* call) {
  if (mpi_status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(mpi_status, text.data(), &length) != MPI_SUCCESS) length = 0;
  throw run_error("{} failed: {} (status {})", call,
                  std::string_view(text.data(), static_cast<size_t>(length)), mpi_status);
}

MpiSession::MpiSession(int* argc, char*** argv) {
  isolate_singleton();
  tune_shared_memory();
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  world_ = MPI_COMM_WORLD;
  find_ranks();
  if (provided < MPI_THREAD_FUNNELED) {
    throw run_error("this MPI was built without thread support (MPI_THREAD_FUNNELED is needed)");
  }
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  find_nodes();
}

MpiSession::MpiSession(MPI_Comm part) : world_(part), is_part_(true) {
  find_ranks();
  find_nodes();
}

std::unique_ptr<MpiSession> MpiSession::of_first(const MpiSession& all, int n_ranks, int tag) {
  WEFT_EXPECT(n_ranks > all.rank() && n_ranks <= all.size());
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm part = MPI_COMM_NULL;
  int range[1][3] = {{0, n_ranks - 1, 1}};
  check(MPI_Comm_group(all.world(), &world), "MPI_Comm_group");
  check(MPI_Group_range_incl(world, 1, range, &group), "MPI_Group_range_incl");
  check(MPI_Comm_create_group(all.world(), group, tag, &part), "MPI_Comm_create_group");
  check(MPI_Group_free(&group), "MPI_Group_free");
  check(MPI_Group_free(&world), "MPI_Group_free");
  return std::unique_ptr<MpiSession>(new MpiSession(part));
}

void MpiSession::find_ranks() {
  check(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
}

void MpiSession::find_nodes() {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  check(MPI_Comm_rank(host, &node_rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(host, &node_size_), "MPI_Comm_size");
  int lowest = rank_;
  check(MPI_Bcast(&lowest, 1, MPI_INT, 0, host), "MPI_Bcast");
  check(MPI_Comm_free(&host), "MPI_Comm_free");

  std::vector<int> lowest_of(static_cast<size_t>(size_));
  check(MPI_Allgather(&lowest, 1, MPI_INT, lowest_of.data(), 1, MPI_INT, world_), "MPI_Allgather");
  std::vector<int> nodes = lowest_of;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (const int first : lowest_of) {
    const auto place = std::lower_bound(nodes.begin(), nodes.end(), first);
    node_of_.push_back(static_cast<int>(place - nodes.begin()));
  }
  node_ = node_of_[static_cast<size_t>(rank_)];
}

void MpiSession::close() {
  WEFT_EXPECT(!closed_);
  // MPI_Finalize waits for all ranks too, but at full speed.
  MPI_Request all_here = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(world_, &all_here), "MPI_Ibarrier");
  wait_gently(&all_here);
  closed_ = true;
  if (is_part_)
    check(MPI_Comm_free(&world_), "MPI_Comm_free");
  else
    check(MPI_Finalize(), "MPI_Finalize");
}

void MpiSession::abort(int status) {
  MPI_Abort(world_, status);
  std::_Exit(status);
}

MpiSession::~MpiSession() {
  if (closed_) return;
  if (size_ > 1) abort(1);
  if (!is_part_) MPI_Finalize();
}

void wait_gently(MPI_Request* request) {
  Patience patience;
  int done = 0;
  while (true) {
    check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    patience.pause();
  }
}

void wait_gently(MPI_Request* requests, int n) {
  for (int i = 0; i < n; ++i) wait_gently(requests + i);
}

}  // namespace weft::parallel
