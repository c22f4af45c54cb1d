// Isend and Irecv into preallocated requests, and the check of what arrived.
#include "parallel/message_list.h"

#include "parallel/mpi_session.h"
#include "parallel/patience.h"
#include "runtime/base/error.h"

namespace weft::parallel {

MessageList::MessageList(const Wire& wire, size_t max_messages)
    : wire_(wire), max_messages_(max_messages) {
  pending_.reserve(2 * max_messages);
}

void MessageList::send(const void* data, size_t bytes, int peer) {
  start(const_cast<void*>(data), bytes, peer, false);
}

void MessageList::recv(void* data, size_t bytes, int peer) { start(data, bytes, peer, true); }

void MessageList::start(void* data, size_t bytes, int peer, bool receives) {
  WEFT_EXPECT(pending_.size() + 2 <= pending_.capacity());
  if (bytes <= wire_.most_bytes) {
    start_part(data, bytes, MPI_BYTE, peer, receives);
    return;
  }
  const size_t n_blocks = bytes / wire_.block_bytes;
  const size_t whole_bytes = n_blocks * wire_.block_bytes;
  start_part(data, n_blocks, wire_.block, peer, receives);
  // Sent even when it is empty: a receiver that expects more then fails instead of waiting.
  start_part(static_cast<std::byte*>(data) + whole_bytes, bytes - whole_bytes, MPI_BYTE, peer,
             receives);
}

void MessageList::start_part(void* data, size_t count, MPI_Datatype type, int peer, bool receives) {
  const int n = static_cast<int>(count);
  pending_.push_back({MPI_REQUEST_NULL, receives, peer, type, n});
  MPI_Request* request = &pending_.back().request;
  if (receives) {
    check(MPI_Irecv(data, n, type, peer, wire_.tag, wire_.comm, request), "MPI_Irecv");
  } else {
    check(MPI_Isend(data, n, type, peer, wire_.tag, wire_.comm, request), "MPI_Isend");
  }
}

bool MessageList::test() {
  while (next_ < pending_.size()) {
    Pending& pending = pending_[next_];
    int done = 0;
    MPI_Status mpi_status{};
    const int status = MPI_Test(&pending.request, &done, &mpi_status);
    if (status == MPI_SUCCESS && !done) return false;
    if (pending.receives) {
      check_received(pending, status, mpi_status);
    } else {
      check(status, "MPI_Isend");
    }
    ++next_;
  }
  pending_.clear();
  next_ = 0;
  return true;
}

void MessageList::wait() {
  Patience patience;
  while (!test()) patience.pause();
}

void MessageList::check_received(const Pending& pending, int status,
                                 const MPI_Status& mpi_status) const {
  const size_t unit = pending.type == MPI_BYTE ? 1 : wire_.block_bytes;
  const size_t expected = static_cast<size_t>(pending.count) * unit;
  int error_class = MPI_SUCCESS;
  if (status != MPI_SUCCESS) MPI_Error_class(status, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) {
    throw run_error(
        "a message from rank {} of the group is longer than the {} bytes expected: the ranks "
        "disagree about the operation or its size",
        pending.peer, expected);
  }
  check(status, "MPI_Irecv");
  MPI_Count got = 0;
  check(MPI_Get_elements_x(&mpi_status, MPI_BYTE, &got), "MPI_Get_elements_x");
  if (static_cast<size_t>(got) == expected) return;
  throw run_error(
      "a message from rank {} of the group has {} bytes where {} were expected: the ranks disagree "
      "about the operation or its size",
      pending.peer, static_cast<long long>(got), expected);
}

}  // namespace weft::parallel
