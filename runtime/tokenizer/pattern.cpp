// PCRE2 with its just-in-time compiler, under limits that end a pattern that explodes.
#include "runtime/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/error.h"
#include "runtime/tokenizer/unicode_stand_ins.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

// A run of 1 MB is one match of about as many steps; what needs hundreds of times more is a
// pattern that explodes.
constexpr uint32_t kMatchLimit = 200'000'000;
constexpr size_t kJitStackBytes = size_t{64} << 20;
constexpr size_t kMostPatternBytes = size_t{64} << 10;

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

std::string message_of(int status) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(status, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Compiled {
  std::string where;
  Code code;
  bool is_fast = false;  // the JIT compiled it
  JitStack stack;
  MatchContext context;
  MatchData data;
  std::string stand_in;  // the text with newer characters replaced

  // The next match at or after `at`; false where there is none.
  bool next(std::string_view text, size_t at, Span& match);
};

bool Pattern::Compiled::next(std::string_view text, size_t at, Span& match) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int status = PCRE2_ERROR_JIT_STACKLIMIT;
  if (is_fast) {
    status = pcre2_jit_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                             context.get());
  }
  if (status == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
    status = pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         data.get(), context.get());
  }
  if (status == PCRE2_ERROR_NOMATCH) return false;
  if (status < 0) {
    throw run_error("{}: the pattern fails at byte {} of {}: {}", where, at, text.size(),
                    message_of(status));
  }
  const size_t* ends = pcre2_get_ovector_pointer(data.get());
  match = {ends[0], ends[1]};
  if (match.begin > match.end || match.begin < at) {  // \K in a lookaround
    throw run_error("{}: the pattern matches backwards at byte {}", where, at);
  }
  return true;
}

Pattern Pattern::from_literal(std::string_view text, const std::string& where) {
  if (text.empty()) throw input_error("{}: an empty pattern", where);
  if (text.size() > kMostPatternBytes) {
    throw input_error("{}: a pattern of {} bytes; at most {} are read", where, text.size(),
                      kMostPatternBytes);
  }
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

Pattern Pattern::from_regex(std::string_view regex, const std::string& where) {
  return from_pcre2(pcre2_from_oniguruma(regex, where), where);
}

Pattern Pattern::from_pcre2(std::string_view regex, const std::string& where) {
  if (regex.size() > kMostPatternBytes) {
    throw input_error("{}: a pattern of {} bytes; at most {} are read", where, regex.size(),
                      kMostPatternBytes);
  }
  auto compiled = std::make_shared<Compiled>();
  compiled->where = where;
  const CompileContext how(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(how.get(), PCRE2_NEWLINE_LF);
  int status = 0;
  size_t offset = 0;
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &status,
                    &offset, how.get()));
  if (!compiled->code) {
    throw input_error("{}: not a regular expression: {} at byte {} of `{}`", where,
                      message_of(status), offset, regex);
  }
  // Without a JIT for this machine PCRE2 interprets: slower, the same matches.
  compiled->is_fast = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled->stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
  compiled->context.reset(pcre2_match_context_create(nullptr));
  compiled->data.reset(pcre2_match_data_create_from_pattern(compiled->code.get(), nullptr));
  if (!compiled->context || !compiled->data) throw run_error("{}: out of memory", where);
  if (compiled->stack) {
    pcre2_jit_stack_assign(compiled->context.get(), nullptr, compiled->stack.get());
  }
  pcre2_set_match_limit(compiled->context.get(), kMatchLimit);
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

void Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  if (is_literal()) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      matches.push_back({at, at + literal_.size()});
    }
    return;
  }
  if (replace_by_stand_ins(text, compiled_->stand_in)) text = compiled_->stand_in;
  Span match{};
  size_t at = 0, last_end = std::string_view::npos;
  while (at <= text.size() && compiled_->next(text, at, match)) {
    at = match.end;
    if (match.begin == match.end && match.end == last_end) {
      at += at < text.size() ? utf8_step(text, at).bytes : 1;
      continue;
    }
    last_end = match.end;
    matches.push_back(match);
  }
}

}  // namespace weft::runtime
