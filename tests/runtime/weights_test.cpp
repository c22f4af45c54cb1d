// Every layout's slices, put together again, are the checkpoint's tensors with zeros for padding.
#include "runtime/weights.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>

#include "planner/shard_shapes.h"
#include "runtime/base/file.h"
#include "runtime/synth_folder.h"
#include "runtime/tensor_list.h"
#include "tests/support/command.h"
#include "tests/support/error_text.h"
#include "tests/support/small_model.h"
#include "tests/support/thread_communicator.h"

namespace weft::runtime {
namespace {

using planner::ModelSpec;
using planner::Plan;
using planner::Range;

std::vector<float> to_floats(const void* data, DType dtype, size_t n) {
  std::vector<float> values(n);
  convert(data, dtype, values.data(), DType::f32, n);
  return values;
}

// What the arena must hold: the source's values, rounded to the plan's dtype.
class Whole {
 public:
  Whole(const ModelSpec& spec, uint64_t seed, DType dtype)
      : source_(make_synthetic(spec, seed)), dtype_(dtype) {}

  size_t columns(const std::string& name) const {
    const TensorInfo& info = *source_->find(name);
    return info.shape.size() > 1 ? info.shape[1] : 1;
  }

  const std::vector<float>& values(const std::string& name) {
    std::vector<float>& values = cache_[name];
    if (!values.empty()) return values;
    const TensorInfo& info = *source_->find(name);
    kernels::ThreadPool pool(1);
    const size_t n = n_elements(info.shape);
    std::vector<std::byte> stored(n * dtype_bytes(info.dtype)), wanted(n * dtype_bytes(dtype_));
    source_->read_rows(name, 0, info.shape[0], stored.data(), pool);
    convert(stored.data(), info.dtype, wanted.data(), dtype_, n);
    return values = to_floats(wanted.data(), dtype_, n);
  }

 private:
  std::unique_ptr<TensorSource> source_;
  DType dtype_;
  std::map<std::string, std::vector<float>> cache_;
};

// `in` [rows.size(), width] holds these rows and columns of a tensor; beyond the tensor, zeros.
void expect_part(Whole& whole, const In& in, size_t first_row, size_t width,
                 const std::string& name, Range rows, Range columns, size_t n_rows,
                 size_t n_columns) {
  ASSERT_TRUE(in) << name;
  const auto* data = static_cast<const std::byte*>(in.data);
  const auto got =
      to_floats(data + first_row * width * dtype_bytes(in.dtype), in.dtype, rows.size() * width);
  const std::vector<float>& all = whole.values(name);
  const size_t stride = whole.columns(name);
  for (size_t row = rows.begin; row < rows.end; ++row)
    for (size_t column = columns.begin; column < columns.end; ++column) {
      const bool padding = row >= n_rows || column >= n_columns;
      const float wanted = padding ? 0 : all.at(row * stride + column);
      const float value = got[(row - rows.begin) * width + column - columns.begin];
      if (value != wanted)
        FAIL() << name << " at " << row << ", " << column << ": " << value << ", not " << wanted;
    }
}

Range times(Range range, size_t n) { return {range.begin * n, range.end * n}; }

class Check {
 public:
  Check(const ModelSpec& spec, uint64_t seed, DType dtype, size_t tp, size_t tp_rank)
      : spec_(spec), whole_(spec, seed, dtype), shard_(planner::shard_shapes(spec, tp, tp_rank)) {}

  void layer(const LayerWeights& w, size_t i) {
    const Range all{0, spec_.hidden};
    vector(w.input_norm, layer_tensor(i, "input_layernorm.weight"), spec_.hidden);
    vector(w.post_norm, layer_tensor(i, "post_attention_layernorm.weight"), spec_.hidden);
    attention(w, i, all);
    const size_t f = shard_.ffn.size();
    const auto gate = layer_tensor(i, "mlp.gate_proj."), up = layer_tensor(i, "mlp.up_proj.");
    const size_t hidden = spec_.hidden, ffn = spec_.ffn;
    expect_part(whole_, w.gate_up, 0, hidden, gate + "weight", shard_.ffn, all, ffn, hidden);
    expect_part(whole_, w.gate_up, f, hidden, up + "weight", shard_.ffn, all, ffn, hidden);
    expect_part(whole_, w.down, 0, f, layer_tensor(i, "mlp.down_proj.weight"), all, shard_.ffn,
                hidden, ffn);
    if (!spec_.ffn_bias) return;
    expect_part(whole_, w.gate_up_bias, 0, 1, gate + "bias", shard_.ffn, {0, 1}, ffn, 1);
    expect_part(whole_, w.gate_up_bias, f, 1, up + "bias", shard_.ffn, {0, 1}, ffn, 1);
    vector(w.down_bias, layer_tensor(i, "mlp.down_proj.bias"), hidden);
  }

  void vocabulary(const In& in, const char* name) {
    expect_part(whole_, in, 0, spec_.hidden, name, shard_.vocab, {0, spec_.hidden}, spec_.vocab,
                spec_.hidden);
  }

  void vector(const In& in, const std::string& name, size_t n) {
    expect_part(whole_, in, 0, 1, name, {0, n}, {0, 1}, n, 1);
  }

 private:
  void attention(const LayerWeights& w, size_t i, Range all) {
    const size_t d = spec_.head_dim, hidden = spec_.hidden;
    const Range heads = times(shard_.heads, d), kv = times(shard_.kv_heads, d);
    const auto name = [&](const char* which, const char* kind) {
      return layer_tensor(i, fmt::format("self_attn.{}.{}", which, kind));
    };
    const size_t k_row = heads.size(), v_row = heads.size() + kv.size();
    const size_t most = SIZE_MAX;
    expect_part(whole_, w.qkv, 0, hidden, name("q_proj", "weight"), heads, all, most, hidden);
    expect_part(whole_, w.qkv, k_row, hidden, name("k_proj", "weight"), kv, all, most, hidden);
    expect_part(whole_, w.qkv, v_row, hidden, name("v_proj", "weight"), kv, all, most, hidden);
    expect_part(whole_, w.o, 0, heads.size(), name("o_proj", "weight"), all, heads, hidden, most);
    if (spec_.qkv_bias) {
      expect_part(whole_, w.qkv_bias, 0, 1, name("q_proj", "bias"), heads, {0, 1}, most, 1);
      expect_part(whole_, w.qkv_bias, k_row, 1, name("k_proj", "bias"), kv, {0, 1}, most, 1);
      expect_part(whole_, w.qkv_bias, v_row, 1, name("v_proj", "bias"), kv, {0, 1}, most, 1);
    }
    if (spec_.o_bias) vector(w.o_bias, name("o_proj", "bias"), hidden);
    if (!spec_.qk_norm) return;
    vector(w.q_norm, name("q_norm", "weight"), d);
    vector(w.k_norm, name("k_norm", "weight"), d);
  }

  const ModelSpec& spec_;
  Whole whole_;
  planner::ShardShapes shard_;
};

using OpenSource = std::function<std::unique_ptr<TensorSource>()>;

// Loads a stage on hosts of `host_sizes` ranks and checks each rank's slices. Returns the bytes
// that all ranks mapped.
size_t check_stage(const ModelSpec& spec, const Plan& plan, size_t stage,
                   const std::vector<size_t>& host_sizes, const OpenSource& open = {},
                   bool map_files = true) {
  std::atomic<size_t> mapped = 0;
  const auto& stages = plan.replicas[0].stages;
  const size_t tp = stages[stage].tp;
  size_t first = 0;
  for (size_t host_size : host_sizes) {
    std::vector<size_t> tp_ranks;
    for (size_t i = 0; i < host_size; ++i) tp_ranks.push_back(first + i);
    first += host_size;
    test::run_ranks(static_cast<int>(host_size), [&](test::ThreadCommunicator& group) {
      kernels::ThreadPool pool(2);
      kernels::Stream stream(pool);
      const auto source = open ? open() : make_synthetic(spec, 11);
      const size_t tp_rank = tp_ranks[static_cast<size_t>(group.rank())];
      size_t last_done = 0, last_total = 0;
      LoadReport report;
      const StageWeights weights = load_weights(
          *source, spec, plan, stage, tp_rank, group, tp_ranks, stream,
          [&](size_t done, size_t total) {
            EXPECT_GE(done, last_done);
            last_done = done;
            last_total = total;
          },
          &report, map_files);
      mapped += report.mapped_bytes;
      EXPECT_EQ(last_done, last_total);
      EXPECT_EQ(report.read_bytes, last_total);
      EXPECT_EQ(report.read_bytes, source->bytes_read());
      Check check(spec, 11, plan.formats.weights, tp, tp_rank);
      ASSERT_EQ(weights.layers.size(), stages[stage].layers.size());
      for (size_t i = 0; i < weights.layers.size(); ++i)
        check.layer(weights.layers[i], stages[stage].layers.begin + i);
      EXPECT_EQ(static_cast<bool>(weights.embedding), stage == 0);
      if (stage == 0) check.vocabulary(weights.embedding, kEmbeddingName);
      EXPECT_EQ(static_cast<bool>(weights.head), stage + 1 == stages.size());
      if (stage + 1 < stages.size()) return;
      check.vector(weights.final_norm, kFinalNormName, spec.hidden);
      check.vocabulary(weights.head, spec.tied_embeddings ? kEmbeddingName : kHeadName);
    });
  }
  return mapped;
}

TEST(Weights, OneRankHoldsEverything) {
  for (const ModelSpec& spec : {test::small_model(), test::full_model()})
    check_stage(spec, test::even_plan(spec, 1, 1, DType::bf16), 0, {1});
}

TEST(Weights, RanksHoldTheirSlices) {
  const ModelSpec spec = test::full_model();
  for (size_t tp : {2u, 4u, 8u})  // 4 and 8: KV heads are replicated
    check_stage(spec, test::even_plan(spec, 1, tp, DType::bf16), 0, {tp});
}

TEST(Weights, HostsReadForTheirOwnRanks) {
  const ModelSpec spec = test::full_model();
  check_stage(spec, test::even_plan(spec, 1, 4, DType::bf16), 0, {1, 3});
  check_stage(spec, test::even_plan(spec, 1, 2, DType::bf16), 0, {1, 1});
}

TEST(Weights, StagesHoldTheirLayers) {
  ModelSpec spec = test::small_model();
  const Plan plan = test::even_plan(spec, 2, 2, DType::bf16);
  for (bool tied : {false, true}) {
    spec.tied_embeddings = tied;
    for (size_t stage : {0u, 1u}) check_stage(spec, plan, stage, {2});
  }
}

TEST(Weights, AreConvertedToThePlansDtype) {
  ModelSpec spec = test::small_model();
  for (DType stored : {DType::bf16, DType::f16, DType::f32})
    for (DType wanted : {DType::bf16, DType::f16, DType::f32}) {
      spec.dtype = stored;
      check_stage(spec, test::even_plan(spec, 1, 2, wanted), 0, {2});
    }
}

TEST(Weights, AreReadInPiecesWhereTheyAreLarge) {
  ModelSpec spec = test::small_model();
  spec.n_layers = 1;
  spec.hidden = 101;  // two ranks have 50 and 51 rows of down_proj to read, 46 at a time
  spec.ffn = 90'001;
  check_stage(spec, test::even_plan(spec, 1, 2, DType::f32), 0, {2});
}

// Tensors that are worth mapping, and some that are not.
ModelSpec mapped_model() {
  return test::llama_of({.n_layers = 2,
                         .hidden = 528,
                         .n_heads = 8,
                         .n_kv_heads = 4,
                         .head_dim = 66,
                         .ffn = 2501,
                         .vocab = 3001,
                         .context = 128});
}

// A checkpoint of mapped_model() with `spaces` more behind its header.
class MappedCheckpoint {
 public:
  explicit MappedCheckpoint(const ModelSpec& spec, size_t spaces = 0) : spec_(spec) {
    kernels::ThreadPool pool(2);
    write_synth_folder({spec, 11}, folder_ / "model", pool, {});
    if (spaces == 0) return;
    std::string text = read_text(path(), size_t{1} << 30);
    uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    text.insert(sizeof header + header, std::string(spaces, ' '));
    header += spaces;
    std::memcpy(text.data(), &header, sizeof header);
    write_file(path(), text);
  }
  std::string path() const { return folder_ / "model/model.safetensors"; }
  std::unique_ptr<TensorSource> open() const { return open_checkpoint(folder_ / "model", spec_); }

 private:
  ModelSpec spec_;
  test::TemporaryFolder folder_;
};

TEST(MappedWeights, AreTheCheckpointsValues) {
  ModelSpec spec = mapped_model();
  for (DType dtype : {DType::bf16, DType::f32}) {
    spec.dtype = dtype;
    // A header need not end on a page, a cache line or a whole element.
    for (size_t spaces : {0u, 8u, 2u, 1u, 4096u}) {
      const MappedCheckpoint checkpoint(spec, spaces);
      const auto open = [&] { return checkpoint.open(); };
      const Plan plan = test::even_plan(spec, 1, 1, dtype);
      const size_t mapped = check_stage(spec, plan, 0, {1}, open);
      if (spaces % dtype_bytes(dtype) == 0)
        EXPECT_GT(mapped, 2 * spec.vocab * spec.hidden * dtype_bytes(dtype));
      else
        EXPECT_EQ(mapped, 0u);
      EXPECT_EQ(check_stage(spec, plan, 0, {1}, open, false), 0u);
    }
  }
}

TEST(MappedWeights, AreThoseThatLieWholeInTheirFiles) {
  const ModelSpec spec = mapped_model();
  const MappedCheckpoint checkpoint(spec);
  const auto open = [&] { return checkpoint.open(); };
  for (size_t tp : {2u, 4u, 8u})  // the shares of 4 and 8 ranks are too small
    EXPECT_EQ(check_stage(spec, test::even_plan(spec, 1, tp, DType::bf16), 0, {tp}, open) > 0,
              tp == 2);
  for (size_t stage : {0u, 1u})
    EXPECT_GT(check_stage(spec, test::even_plan(spec, 2, 1, DType::bf16), stage, {1}, open), 0u);
  // Converted values are copies.
  EXPECT_EQ(check_stage(spec, test::even_plan(spec, 1, 1, DType::f32), 0, {1}, open), 0u);
}

TEST(MappedWeights, SayWhereAFileWasCutShort) {
  const ModelSpec spec = mapped_model();
  const MappedCheckpoint checkpoint(spec);
  test::run_ranks(1, [&](test::ThreadCommunicator& group) {
    kernels::ThreadPool pool(2);
    kernels::Stream stream(pool);
    const auto source = checkpoint.open();
    std::filesystem::resize_file(checkpoint.path(), 5'000'000);
    const std::string text = test::error_text([&] {
      load_weights(*source, spec, test::even_plan(spec, 1, 1, DType::bf16), 0, 0, group, {0},
                   stream, {}, nullptr);
    });
    EXPECT_NE(text.find("model.safetensors was cut at offset "), std::string::npos) << text;
  });
}

TEST(Weights, ATiedHeadIsTheEmbeddingWhereBothAreHere) {
  ModelSpec spec = test::small_model();
  spec.tied_embeddings = true;
  test::run_ranks(1, [&](test::ThreadCommunicator& group) {
    kernels::ThreadPool pool(1);
    kernels::Stream stream(pool);
    const auto source = make_synthetic(spec, 1);
    const auto weights = load_weights(*source, spec, test::even_plan(spec, 1, 1, DType::bf16), 0, 0,
                                      group, {0}, stream, {}, nullptr);
    EXPECT_EQ(weights.head.data, weights.embedding.data);
  });
}

TEST(Weights, ColumnsAreReadOnceAHost) {
  const ModelSpec spec = test::small_model();
  const Plan plan = test::even_plan(spec, 1, 2, DType::bf16);
  std::mutex mutex;
  size_t read = 0, useful = 0;
  test::run_ranks(2, [&](test::ThreadCommunicator& group) {
    kernels::ThreadPool pool(1);
    kernels::Stream stream(pool);
    const auto source = make_synthetic(spec, 1);
    LoadReport report;
    load_weights(*source, spec, plan, 0, static_cast<size_t>(group.rank()), group, {0, 1}, stream,
                 {}, &report);
    const std::lock_guard lock(mutex);
    read += report.read_bytes;
    useful += report.useful_bytes;
  });
  // Both ranks hold the norms; all else is held, and read, once.
  const size_t norms = (2 * spec.n_layers + 1) * spec.hidden;
  EXPECT_EQ(read, 2 * (planner::n_parameters(spec) + norms));
  EXPECT_EQ(useful, read);
}

// Fails from a given tensor on, as a disk with a bad sector would.
class BrokenSource final : public TensorSource {
 public:
  BrokenSource(const ModelSpec& spec, std::string bad)
      : inner_(make_synthetic(spec, 1)), bad_(std::move(bad)) {}
  const TensorInfo* find(const std::string& name) const override { return inner_->find(name); }
  Place place(const std::string& name) const override { return inner_->place(name); }
  void read_rows(const std::string& name, size_t begin, size_t end, void* to,
                 kernels::ThreadPool& pool) override {
    if (name == bad_) throw run_error("cannot read {}: Input/output error", name);
    inner_->read_rows(name, begin, end, to, pool);
  }
  std::string fingerprint() const override { return inner_->fingerprint(); }
  size_t bytes_read() const override { return inner_->bytes_read(); }

 private:
  std::unique_ptr<TensorSource> inner_;
  std::string bad_;
};

TEST(Weights, AFailureOnOneRankEndsAllOfThem) {
  const ModelSpec spec = test::small_model();
  const Plan plan = test::even_plan(spec, 1, 4, DType::bf16);
  for (const char* bad : {"lm_head.weight", "model.layers.1.mlp.down_proj.weight",
                          "model.layers.2.self_attn.v_proj.weight", "model.norm.weight"}) {
    std::mutex mutex;
    std::vector<std::string> texts(4);
    test::run_ranks(4, [&](test::ThreadCommunicator& group) {
      kernels::ThreadPool pool(1);
      kernels::Stream stream(pool);
      BrokenSource source(spec, group.rank() == 2 ? bad : "");
      const auto rank = static_cast<size_t>(group.rank());
      const std::string text = test::error_text([&] {
        load_weights(source, spec, plan, 0, rank, group, {0, 1, 2, 3}, stream, {}, nullptr);
      });
      const std::lock_guard lock(mutex);
      texts[rank] = text;
    });
    EXPECT_EQ(texts[2], fmt::format("cannot read {}: Input/output error", bad));
    for (size_t rank : {0u, 1u, 3u})
      EXPECT_EQ(texts[rank], "1 other ranks of this host could not load their weights");
  }
}

TEST(Weights, OperandsAreAligned) {
  const ModelSpec spec = test::full_model();
  test::run_ranks(1, [&](test::ThreadCommunicator& group) {
    kernels::ThreadPool pool(1);
    kernels::Stream stream(pool);
    const auto source = make_synthetic(spec, 1);
    const auto weights = load_weights(*source, spec, test::even_plan(spec, 1, 1, DType::bf16), 0, 0,
                                      group, {0}, stream, {}, nullptr);
    for (const In* in : {&weights.embedding, &weights.layers[1].q_norm, &weights.layers[1].k_norm,
                         &weights.layers[1].down, &weights.layers[2].o_bias, &weights.head})
      EXPECT_EQ(reinterpret_cast<uintptr_t>(in->data) % 64, 0u);
  });
}

}  // namespace
}  // namespace weft::runtime
