// Rings of buffers over Isend and Irecv.
#include "parallel/control_channel.h"

#include <algorithm>
#include <climits>

#include "parallel/patience.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int kTag = 1;

}  // namespace

ControlSender::ControlSender(MPI_Comm comm, std::span<const int> receivers, size_t max_bytes,
                             size_t depth)
    : comm_(comm),
      receivers_(receivers.begin(), receivers.end()),
      max_bytes_(max_bytes),
      depth_(depth),
      buffers_(depth * max_bytes),
      requests_(depth * receivers.size(), MPI_REQUEST_NULL) {}

std::span<MPI_Request> ControlSender::requests(size_t slot) {
  return std::span(requests_).subspan(slot * receivers_.size(), receivers_.size());
}

std::span<std::byte> ControlSender::buffer() {
  const size_t slot = n_sent_ % depth_;
  for (MPI_Request& request : requests(slot)) wait_gently(&request);
  return {buffers_.data() + slot * max_bytes_, max_bytes_};
}

void ControlSender::send(size_t bytes) {
  WEFT_EXPECT(bytes <= max_bytes_);
  const std::span<std::byte> message = buffer().first(bytes);
  const std::span<MPI_Request> sends = requests(n_sent_ % depth_);
  for (size_t i = 0; i < receivers_.size(); ++i) {
    check(MPI_Isend(message.data(), static_cast<int>(bytes), MPI_BYTE, receivers_[i], kTag, comm_,
                    &sends[i]),
          "MPI_Isend");
  }
  ++n_sent_;
}

void ControlSender::close() {
  for (MPI_Request& request : requests_) wait_gently(&request);
}

ControlReceiver::ControlReceiver(MPI_Comm comm, int root, size_t max_bytes, size_t depth)
    : comm_(comm),
      root_(root),
      max_bytes_(max_bytes),
      depth_(depth),
      buffers_(depth * max_bytes),
      requests_(depth, MPI_REQUEST_NULL) {
  for (size_t slot = 0; slot < depth; ++slot) post(slot);
}

void ControlReceiver::post(size_t slot) {
  check(MPI_Irecv(buffer(slot), static_cast<int>(max_bytes_), MPI_BYTE, root_, kTag, comm_,
                  &requests_[slot]),
        "MPI_Irecv");
}

std::optional<std::span<const std::byte>> ControlReceiver::test() {
  WEFT_EXPECT(n_read_ - n_released_ < depth_);
  const size_t slot = n_read_ % depth_;
  int done = 0;
  MPI_Status status{};
  check(MPI_Test(&requests_[slot], &done, &status), "MPI_Test");
  if (!done) return std::nullopt;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  ++n_read_;
  return std::span<const std::byte>(buffer(slot), static_cast<size_t>(bytes));
}

std::span<const std::byte> ControlReceiver::wait() {
  Patience patience;
  while (true) {
    if (const auto message = test()) return *message;
    patience.pause();
  }
}

void ControlReceiver::release() {
  WEFT_EXPECT(n_released_ < n_read_);
  post(n_released_ % depth_);
  ++n_released_;
}

void ControlReceiver::close() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    check(MPI_Cancel(&request), "MPI_Cancel");
    wait_gently(&request);
  }
}

ControlChannel::ControlChannel(const MpiSession& session, int root, std::span<const int> receivers,
                               size_t max_bytes, size_t depth) {
  WEFT_EXPECT(max_bytes > 0 && max_bytes <= INT_MAX && depth > 0);
  check(MPI_Comm_dup(session.world(), &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  const int rank = session.rank();
  if (std::find(receivers.begin(), receivers.end(), rank) != receivers.end()) {
    receiver_ = std::make_unique<ControlReceiver>(comm_, root, max_bytes, depth);
  }
  if (rank == root) sender_ = std::make_unique<ControlSender>(comm_, receivers, max_bytes, depth);
}

ControlSender& ControlChannel::sender() {
  WEFT_EXPECT(sender_ != nullptr);
  return *sender_;
}

ControlReceiver& ControlChannel::receiver() {
  WEFT_EXPECT(receiver_ != nullptr);
  return *receiver_;
}

void ControlChannel::close() {
  WEFT_EXPECT(comm_ != MPI_COMM_NULL);
  if (sender_) sender_->close();
  if (receiver_) receiver_->close();
  sender_.reset();
  receiver_.reset();
  check(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

}  // namespace weft::parallel
