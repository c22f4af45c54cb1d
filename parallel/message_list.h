// Messages that are started one by one and awaited together, in memory taken beforehand. A message
// of another length than the receiver expects is an Error, never silent corruption.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace weft::parallel {

// What all messages of a kind share. MPI counts in int, so a message longer than `most_bytes` goes
// as two: whole blocks, then the rest.
struct Wire {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  MPI_Datatype block = MPI_BYTE;  // committed, of block_bytes contiguous bytes
  size_t block_bytes = 1;
  size_t most_bytes = 0;
};

class MessageList {
 public:
  // Room for max_messages messages at a time.
  MessageList(const Wire& wire, size_t max_messages);

  // The memory belongs to the message until test() has said true or wait() has returned. Messages
  // between a pair of ranks arrive in the order in which both sides started them.
  void send(const void* data, size_t bytes, int peer);
  void recv(void* data, size_t bytes, int peer);

  // True once all messages are complete; the list is empty then. Throws Error for a message that
  // failed or had another length.
  bool test();
  void wait();

  bool empty() const { return pending_.empty(); }
  size_t room() const { return max_messages_ - pending_.size() / 2; }

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    bool receives = false;
    int peer = 0;
    MPI_Datatype type = MPI_BYTE;
    int count = 0;  // of type
  };

  void start(void* data, size_t bytes, int peer, bool receives);
  void start_part(void* data, size_t count, MPI_Datatype type, int peer, bool receives);
  void check_received(const Pending& pending, int status, const MPI_Status& mpi_status) const;

  Wire wire_;
  size_t max_messages_;
  std::vector<Pending> pending_;  // capacity 2 * max_messages, never exceeded
  size_t next_ = 0;               // the first that is not known to be complete
};

}  // namespace weft::parallel
