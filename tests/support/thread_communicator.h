// A Communicator whose ranks are threads of one process: collective code is tested without MPI.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/communicator.h"

namespace weft::test {

// Letter boxes of one group: messages between a pair keep their order.
class ThreadHub {
 public:
  explicit ThreadHub(int size) : size_(size) {}
  int size() const { return size_; }

  void send(int from, int to, const void* data, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].emplace_back(begin, begin + bytes);
    arrived_.notify_all();
  }

  void receive(int from, int to, void* data, size_t bytes) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    if (!arrived_.wait_for(lock, std::chrono::seconds(30), [&] { return !box.empty(); }))
      throw std::runtime_error("a peer sent nothing for 30 s");
    const std::vector<std::byte> message = std::move(box.front());
    box.pop_front();
    if (message.size() != bytes) throw std::runtime_error("a message of another size");
    std::memcpy(data, message.data(), bytes);
  }

  bool has(int from, int to, size_t n) {
    const std::lock_guard lock(mutex_);
    return boxes_[{from, to}].size() >= n;
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes_;
};

class ThreadCommunicator : public parallel::Communicator {
 public:
  ThreadCommunicator(ThreadHub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.size(); }

  void all_reduce(void* data, size_t n, DType dtype, kernels::Stream& stream) override {
    if (dtype != DType::f32) throw std::logic_error("sums of f32 only");
    sum(static_cast<float*>(data), n, stream);
  }
  void all_reduce_tree(float* data, size_t n, kernels::Stream& stream) override {
    sum(data, n, stream);
  }
  void all_gather(const void* mine, void* all, size_t bytes, kernels::Stream&) override {
    auto* out = static_cast<std::byte*>(all);
    std::memmove(out + static_cast<size_t>(rank_) * bytes, mine, bytes);
    const std::byte* own = out + static_cast<size_t>(rank_) * bytes;
    each_peer([&](int peer) { hub_.send(rank_, peer, own, bytes); });
    each_peer([&](int peer) {
      hub_.receive(peer, rank_, out + static_cast<size_t>(peer) * bytes, bytes);
    });
  }
  void reduce_scatter(const float* in, float* out, size_t n, kernels::Stream& stream) override {
    std::vector<float> all(in, in + n * static_cast<size_t>(size()));
    sum(all.data(), all.size(), stream);
    std::memcpy(out, all.data() + static_cast<size_t>(rank_) * n, n * sizeof(float));
  }
  void all_to_all(const void* in, void* out, size_t bytes, kernels::Stream&) override {
    const auto* from = static_cast<const std::byte*>(in);
    auto* to = static_cast<std::byte*>(out);
    const size_t own = static_cast<size_t>(rank_) * bytes;
    std::memcpy(to + own, from + own, bytes);
    each_peer(
        [&](int peer) { hub_.send(rank_, peer, from + static_cast<size_t>(peer) * bytes, bytes); });
    each_peer([&](int peer) {
      hub_.receive(peer, rank_, to + static_cast<size_t>(peer) * bytes, bytes);
    });
  }
  void broadcast(void* data, size_t bytes, int root, kernels::Stream&) override {
    if (rank_ != root) return hub_.receive(root, rank_, data, bytes);
    each_peer([&](int peer) { hub_.send(rank_, peer, data, bytes); });
  }

  parallel::Ticket start(std::span<const parallel::Transfer> transfers, kernels::Stream&) override {
    using Kind = parallel::Transfer::Kind;
    std::vector<parallel::Transfer> receives;
    for (const parallel::Transfer& transfer : transfers)
      if (transfer.kind == Kind::send)
        hub_.send(rank_, transfer.peer, transfer.data, transfer.bytes);
      else
        receives.push_back(transfer);
    open_[next_] = std::move(receives);
    return {next_++};
  }
  bool test(parallel::Ticket ticket) override {
    std::map<int, size_t> needed;
    for (const parallel::Transfer& transfer : open_.at(ticket.index)) ++needed[transfer.peer];
    for (const auto& [peer, n] : needed)
      if (!hub_.has(peer, rank_, n)) return false;
    finish(ticket);
    return true;
  }
  void wait(parallel::Ticket ticket, kernels::Stream&) override { finish(ticket); }

  bool capturable() const override { return false; }
  void close() override {}

 private:
  template <class F>
  void each_peer(F&& f) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_) f(peer);
  }

  // In rank order on every rank: the same bits everywhere.
  void sum(float* data, size_t n, kernels::Stream& stream) {
    std::vector<float> all(n * static_cast<size_t>(size()));
    all_gather(data, all.data(), n * sizeof(float), stream);
    for (size_t i = 0; i < n; ++i) {
      data[i] = all[i];
      for (size_t part = 1; part < static_cast<size_t>(size()); ++part)
        data[i] += all[part * n + i];
    }
  }

  void finish(parallel::Ticket ticket) {
    for (const parallel::Transfer& transfer : open_.at(ticket.index))
      hub_.receive(transfer.peer, rank_, transfer.data, transfer.bytes);
    open_.erase(ticket.index);
  }

  ThreadHub& hub_;
  int rank_;
  uint32_t next_ = 0;
  std::map<uint32_t, std::vector<parallel::Transfer>> open_;
};

// Runs f(communicator) on `size` threads and rethrows what the lowest rank threw.
inline void run_ranks(int size, const std::function<void(ThreadCommunicator&)>& f) {
  ThreadHub hub(size);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadCommunicator communicator(hub, rank);
        f(communicator);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace weft::test
