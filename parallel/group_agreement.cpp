// Each rank's text in a record of fixed length, gathered.
#include "parallel/group_agreement.h"

#include <algorithm>
#include <array>
#include <vector>

#include "parallel/mpi_session.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using Record = std::array<char, 1024>;  // ends with 0

}  // namespace

std::string failure_in_group(Communicator& host, kernels::Stream& stream,
                             const std::function<void()>& step) {
  Record mine{};
  try {
    step();
  } catch (const Error& e) {
    const std::string text = *e.what() != '\0' ? e.what() : "failed";
    std::copy_n(text.begin(), std::min(text.size(), mine.size() - 1), mine.begin());
  }
  std::vector<Record> all(static_cast<size_t>(host.size()));
  host.all_gather(mine.data(), all.data(), sizeof(Record), stream);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Record& r) { return r[0] != 0; });
  if (first == all.end()) return {};
  if (all.size() == 1) return first->data();
  return fmt::format("rank {} of {}: {}", first - all.begin(), all.size(), first->data());
}

void agree_in_group(Communicator& host, kernels::Stream& stream,
                    const std::function<void()>& step) {
  const std::string failure = failure_in_group(host, stream, step);
  if (!failure.empty()) throw AgreedError(failure, 1);
}

void wait_for_group(Communicator& host, kernels::Stream& stream) {
  std::vector<char> all(static_cast<size_t>(host.size()));
  const char here = 1;
  host.all_gather(&here, all.data(), 1, stream);
}

}  // namespace weft::parallel
