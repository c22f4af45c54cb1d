// MPI from start to end, and the one rule about failures during set-up: all ranks agree first.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace weft::parallel {

// Throws Error with MPI's text; overloads of check() exist for every status type.
void check(int mpi_status, const char* call);

// True where mpirun or srun started this process.
bool started_by_launcher();

// Starts MPI (FUNNELED: only the thread that made the session calls it) and ends it. Where the
// process was not started by a launcher this is a world of one rank.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  // The first n_ranks ranks of another session as a world of their own, for jobs that use fewer
  // ranks than there are: a collective of these ranks, with a tag of MPI_Comm_create_group. It ends
  // before the other one does; failures that only its ranks know of end the whole job.
  static std::unique_ptr<MpiSession> of_first(const MpiSession& all, int n_ranks, int tag);
  // Finalizes after close(); without it (an exception passes through) nothing is communicated: the
  // destructor aborts the job where it has other ranks, since they would wait for ever.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  MPI_Comm world() const { return world_; }  // errors are returned, not fatal
  int rank() const { return rank_; }
  int size() const { return size_; }
  int node_rank() const { return node_rank_; }  // among the ranks that share this host's memory
  int node_size() const { return node_size_; }
  int node() const { return node_; }  // number of the host, in order of its lowest rank
  const std::vector<int>& node_of() const { return node_of_; }  // [size] host of each rank

  // Waits for all ranks, then finalizes (a part of another session only lets go of itself). Where
  // all ranks throw the same AgreedError they may close.
  void close();

  // Ends this process, and with it the job, because of a failure that other ranks don't know of.
  [[noreturn]] void abort(int status);

 private:
  explicit MpiSession(MPI_Comm part);
  void find_ranks();
  void find_nodes();

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int node_rank_ = 0;
  int node_size_ = 1;
  int node_ = 0;
  std::vector<int> node_of_;
  bool is_part_ = false;  // of another session: MPI goes on without it
  bool closed_ = false;
};

// A failure that every rank knows of and throws alike: rank 0 says it, all close in order.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Runs a step of set-up on every rank, then agrees: where it failed anywhere, every rank throws the
// same AgreedError, "rank 3 (host b): cannot read x" (several ranks with the same text are joined:
// "ranks 1-3 (host b)"), with the status of the lowest rank that failed. In a world of one rank the
// text stays as it is. The step itself must not communicate with ranks that may have failed before
// it.
void agree(const MpiSession& session, const std::function<void()>& step);

// Waits for a request without holding the core: a few tries, then yields, then sleeps whose length
// grows with the time waited (see Patience).
void wait_gently(MPI_Request* request);
void wait_gently(MPI_Request* requests, int n);

}  // namespace weft::parallel
