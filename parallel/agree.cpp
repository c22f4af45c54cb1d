// One text about the failures of all ranks, the same on every rank.
#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mpi_session.h"
#include "parallel/rank_text.h"

namespace weft::parallel {
namespace {

constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxTexts = 16;  // different ones; the rest is counted

struct Failure {
  int status = 0;  // 0: none
  std::string text;
};

struct Header {
  int status = 0;
  int host_bytes = 0;
  int text_bytes = 0;
};
static_assert(sizeof(Header) == 3 * sizeof(int));

// What failed on one rank, or the ranks where the same thing failed.
struct Report {
  std::vector<int> ranks;
  std::vector<std::string_view> hosts;  // in rank order, each once
  std::string_view text;
};

Failure run(const std::function<void()>& step) {
  try {
    step();
    return {};
  } catch (const Error& e) {
    return {e.status() == 0 ? 1 : e.status(), e.what()};
  } catch (const std::bad_alloc&) {
    return {1, "out of memory"};
  } catch (const std::exception& e) {
    return {1, fmt::format("internal error: {}", e.what())};
  } catch (...) {
    return {1, "internal error: an exception of unknown type"};
  }
}

// Whole UTF-8 characters only.
void shorten(std::string& text) {
  if (text.size() <= kMaxTextBytes) return;
  size_t end = kMaxTextBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  text.resize(end);
  text += "...";
}

std::string host_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  return {name.data(), static_cast<size_t>(length)};
}

std::vector<Header> gather_headers(const MpiSession& session, const Header& mine) {
  std::vector<Header> all(static_cast<size_t>(session.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(&mine, 3, MPI_INT, all.data(), 3, MPI_INT, session.world(), &request),
        "MPI_Iallgather");
  wait_gently(&request);
  return all;
}

// The host and text bytes of all ranks, one rank behind the other.
std::string gather_texts(const MpiSession& session, const std::vector<Header>& headers,
                         const std::string& mine) {
  std::vector<int> counts;
  std::vector<int> offsets;
  int total = 0;
  for (const Header& header : headers) {
    offsets.push_back(total);
    counts.push_back(header.host_bytes + header.text_bytes);
    total += counts.back();
  }
  std::string all(static_cast<size_t>(total), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(),
                        counts.data(), offsets.data(), MPI_CHAR, session.world(), &request),
        "MPI_Iallgatherv");
  wait_gently(&request);
  return all;
}

std::vector<Report> join(const std::vector<Header>& headers, std::string_view texts) {
  std::vector<Report> reports;
  size_t at = 0;
  for (size_t rank = 0; rank < headers.size(); ++rank) {
    const auto host_bytes = static_cast<size_t>(headers[rank].host_bytes);
    const auto text_bytes = static_cast<size_t>(headers[rank].text_bytes);
    const std::string_view host = texts.substr(at, host_bytes);
    const std::string_view text = texts.substr(at + host_bytes, text_bytes);
    at += host_bytes + text_bytes;
    if (headers[rank].status == 0) continue;
    auto same = std::find_if(reports.begin(), reports.end(),
                             [&](const Report& report) { return report.text == text; });
    if (same == reports.end()) same = reports.insert(reports.end(), Report{{}, {}, text});
    same->ranks.push_back(static_cast<int>(rank));
    if (std::find(same->hosts.begin(), same->hosts.end(), host) == same->hosts.end()) {
      same->hosts.push_back(host);
    }
  }
  return reports;
}

std::string report_text(const std::vector<Report>& reports) {
  std::string text;
  const size_t n = std::min(reports.size(), kMaxTexts);
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) text += '\n';
    text += fmt::format("{} ({}): {}", ranks_text(reports[i].ranks), hosts_text(reports[i].hosts),
                        reports[i].text);
  }
  size_t more = 0;
  for (size_t i = n; i < reports.size(); ++i) more += reports[i].ranks.size();
  if (more > 0) text += fmt::format("\nand {} more ranks failed", more);
  return text;
}

}  // namespace

void agree(const MpiSession& session, const std::function<void()>& step) {
  Failure failure = run(step);
  if (session.size() == 1) {
    if (failure.status != 0) throw AgreedError(failure.text, failure.status);
    return;
  }
  std::string mine;
  Header header;
  if (failure.status != 0) {
    shorten(failure.text);
    mine = host_name();
    header = {failure.status, static_cast<int>(mine.size()), static_cast<int>(failure.text.size())};
    mine += failure.text;
  }
  const std::vector<Header> headers = gather_headers(session, header);
  const auto first = std::find_if(headers.begin(), headers.end(),
                                  [](const Header& one) { return one.status != 0; });
  if (first == headers.end()) return;
  const std::string texts = gather_texts(session, headers, mine);
  throw AgreedError(report_text(join(headers, texts)), first->status);
}

}  // namespace weft::parallel
