// Small values that every rank learns of every other during set-up, waited for without spinning.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/mpi_session.h"

namespace weft::parallel {

// Collective calls of all ranks.

// Rank 0's text on every rank.
std::string broadcast_text(const MpiSession& session, std::string text);

void gather_bytes(const MpiSession& session, const void* mine, void* all, size_t bytes);

// [size] the values of all ranks.
template <class T>
std::vector<T> gather(const MpiSession& session, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(session.size()));
  gather_bytes(session, &mine, all.data(), sizeof(T));
  return all;
}

}  // namespace weft::parallel
