// Moves tensors from a source into a rank's arena.
#include "runtime/weight_loader.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using parallel::Transfer;
using planner::Range;

constexpr size_t kDirectBytes = size_t{64} << 20;  // read straight into the arena, between reports
constexpr size_t kStagedBytes = size_t{16} << 20;  // of rows that are packed for peers
constexpr size_t kBounceBytes = size_t{2} << 20;   // of rows that are converted: stays in cache

size_t rows_in(size_t bytes, size_t row_bytes) { return std::max<size_t>(1, bytes / row_bytes); }

}  // namespace

WeightLoader::WeightLoader(TensorSource& source, const planner::ModelSpec& spec,
                           const planner::Plan& plan, size_t tp, parallel::Communicator& group,
                           const std::vector<size_t>& tp_ranks, kernels::Stream& stream,
                           bool map_files)
    : source_(source),
      spec_(spec),
      dtype_(plan.formats.weights),
      tp_(tp),
      group_(group),
      tp_ranks_(tp_ranks),
      stream_(stream),
      map_files_(map_files) {
  WEFT_EXPECT(tp_ranks.size() == static_cast<size_t>(group.size()));
}

void WeightLoader::agree() {
  float n_failed = failure_ ? 1 : 0;
  if (group_.size() > 1) group_.all_reduce(&n_failed, 1, DType::f32, stream_);
  if (failure_) std::rethrow_exception(failure_);
  if (n_failed > 0)
    throw run_error("{:g} other ranks of this host could not load their weights", n_failed);
}

WeightLoader::Tensor WeightLoader::describe(const TensorLoad& load) const {
  const TensorInfo* info = source_.find(load.name);
  if (info == nullptr) throw input_error("the checkpoint has no tensor {}", load.name);
  const size_t columns = info->shape.size() > 1 ? info->shape[1] : 1;
  return {load, info->dtype, columns, columns * dtype_bytes(info->dtype)};
}

bool WeightLoader::is_whole(const TensorLoad& load) const {
  if (load.split == ColumnSplit::none) return true;
  const ColumnPart part = column_part(spec_, load.split, tp_, tp_ranks_[group_.rank()]);
  return tp_ == 1 && part.width == part.columns.size();
}

Range WeightLoader::share(const TensorLoad& load, size_t member) const {
  const size_t n = tp_ranks_.size();
  return {load.rows.size() * member / n, load.rows.size() * (member + 1) / n};
}

size_t WeightLoader::read_bytes(const TensorLoad& load) const {
  const size_t rows = is_whole(load) ? load.rows.size() : share(load, group_.rank()).size();
  return rows * describe(load).row_bytes;
}

size_t WeightLoader::useful_bytes(const TensorLoad& load) const {
  const Tensor tensor = describe(load);
  if (load.split == ColumnSplit::none) return load.rows.size() * tensor.row_bytes;
  const ColumnPart part = column_part(spec_, load.split, tp_, tp_ranks_[group_.rank()]);
  return load.rows.size() * part.columns.size() * dtype_bytes(tensor.dtype);
}

std::optional<size_t> WeightLoader::phase(const std::string& name, size_t row) const {
  const TensorInfo* info = source_.find(name);
  if (!map_files_ || info == nullptr || info->dtype != dtype_) return std::nullopt;
  const auto offset = source_.file_offset(name, row);
  // Elements of a tensor that lies askew in its file could not be loaded one by one.
  if (!offset || *offset % dtype_bytes(dtype_) != 0) return std::nullopt;
  return *offset % kMapAlign;
}

bool WeightLoader::is_mapped(const TensorLoad& load) const {
  if (!map_files_ || destination(load).size() < kMappedBytes || !is_whole(load)) return false;
  if (describe(load).dtype != dtype_) return false;
  const auto offset = source_.file_offset(load.name, load.rows.begin);
  const auto to = reinterpret_cast<uintptr_t>(load.to);
  return offset && (*offset - to) % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0;
}

std::span<std::byte> WeightLoader::destination(const TensorLoad& load) const {
  const size_t width = load.split == ColumnSplit::none
                           ? describe(load).columns
                           : column_part(spec_, load.split, tp_, tp_ranks_[group_.rank()]).width;
  return {load.to, load.rows.size() * width * dtype_bytes(dtype_)};
}

void WeightLoader::load(const TensorLoad& load, const Done& done) {
  if (!is_whole(load)) return load_columns(describe(load), done);
  attempt([&] { load_rows(describe(load), done); });
}

std::byte* WeightLoader::room(Pages& pages, size_t bytes) {
  if (pages.bytes() < bytes) pages = Pages(bytes);
  return pages.data();
}

void WeightLoader::load_rows(const Tensor& tensor, const Done& done) {
  const bool direct = tensor.dtype == dtype_;
  const size_t most = rows_in(direct ? kDirectBytes : kBounceBytes, tensor.row_bytes);
  std::byte* bounce = direct ? nullptr : room(rows_, most * tensor.row_bytes);
  const bool mapped = is_mapped(tensor.load);
  std::byte* to = tensor.load.to;
  for (size_t begin = tensor.load.rows.begin; begin < tensor.load.rows.end;) {
    const size_t n_rows = std::min(most, tensor.load.rows.end - begin);
    const size_t n = n_rows * tensor.columns;
    if (mapped)
      source_.map_rows(tensor.load.name, begin, begin + n_rows, to, stream_.pool());
    else
      source_.read_rows(tensor.load.name, begin, begin + n_rows, direct ? to : bounce,
                        stream_.pool());
    if (!direct)
      stream_.pool().split(n, size_t{1} << 16, [&](size_t from, size_t until) {
        convert(bounce + from * dtype_bytes(tensor.dtype), tensor.dtype,
                to + from * dtype_bytes(dtype_), dtype_, until - from);
      });
    to += n * dtype_bytes(dtype_);
    begin += n_rows;
    done(n_rows * tensor.row_bytes);
  }
}

// Columns of the staged rows, converted and padded: [n_rows, part.width].
void WeightLoader::pack(const Tensor& tensor, const ColumnPart& part, size_t n_rows,
                        std::byte* to) {
  const size_t width_bytes = part.width * dtype_bytes(dtype_);
  const size_t used_bytes = part.columns.size() * dtype_bytes(dtype_);
  const std::byte* from = rows_.data() + part.columns.begin * dtype_bytes(tensor.dtype);
  stream_.pool().split(n_rows, 32, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      std::byte* out = to + row * width_bytes;
      convert(from + row * tensor.row_bytes, tensor.dtype, out, dtype_, part.columns.size());
      std::memset(out + used_bytes, 0, width_bytes - used_bytes);
    }
  });
}

// In rounds: each member reads the next piece of its share, packs every peer's columns of it, and
// gets its own columns of what the peers have read straight into the arena.
void WeightLoader::load_columns(const Tensor& tensor, const Done& done) {
  const size_t me = group_.rank(), n_members = tp_ranks_.size();
  const size_t element = dtype_bytes(dtype_);
  std::vector<ColumnPart> parts;
  size_t all_width = 0;
  for (size_t tp_rank : tp_ranks_) {
    parts.push_back(column_part(spec_, tensor.load.split, tp_, tp_rank));
    all_width += parts.back().width;
  }
  const size_t most = rows_in(kStagedBytes, std::max(tensor.row_bytes, all_width * element));
  const size_t longest = (tensor.load.rows.size() + n_members - 1) / n_members;
  attempt([&] {
    room(rows_, most * tensor.row_bytes);
    room(packed_, most * all_width * element);
  });
  agree();
  const auto piece = [&](size_t member, size_t round) {
    const Range all = share(tensor.load, member);
    const size_t begin = std::min(all.begin + round * most, all.end);
    return Range{begin, std::min(begin + most, all.end)};
  };
  const auto place = [&](Range rows) {
    return tensor.load.to + rows.begin * parts[me].width * element;
  };

  std::vector<Transfer> transfers;
  for (size_t round = 0; round * most < longest; ++round) {
    const Range mine = piece(me, round);
    attempt([&] {
      source_.read_rows(tensor.load.name, mine.begin, mine.end, rows_.data(), stream_.pool());
      done(mine.size() * tensor.row_bytes);
    });
    pack(tensor, parts[me], mine.size(), place(mine));
    transfers.clear();
    std::byte* packed = packed_.data();
    for (size_t peer = 0; peer < n_members; ++peer) {
      if (peer == me) continue;
      const size_t send_bytes = mine.size() * parts[peer].width * element;
      const Range theirs = piece(peer, round);
      const size_t recv_bytes = theirs.size() * parts[me].width * element;
      pack(tensor, parts[peer], mine.size(), packed);
      const int rank = static_cast<int>(peer);
      if (send_bytes > 0) transfers.push_back({Transfer::Kind::send, rank, packed, send_bytes});
      if (recv_bytes > 0)
        transfers.push_back({Transfer::Kind::recv, rank, place(theirs), recv_bytes});
      packed += send_bytes;
    }
    if (!transfers.empty()) group_.exchange(transfers, stream_);
  }
}

}  // namespace weft::runtime
