#include "launch/calibrate_overheads.h"

#include <algorithm>
#include <numeric>

#include "parallel/host_communicator.h"
#include "planner/manual_plan.h"
#include "planner/profile_fit.h"
#include "planner/shard_shapes.h"
#include "runtime/base/log.h"
#include "runtime/engine.h"

namespace weft::launch {
namespace {

using planner::ModelSpec;
using planner::StageShape;

constexpr size_t kPasses = 3;
constexpr size_t kLeastLayers = 8;
// The small one stays in a cache: what is not a product shows there.
constexpr size_t kSmallHidden = 128, kLargeHidden = 1024;
// Of whole steps: too much for a core's own cache, little enough for the one that cores share.
constexpr size_t kStepHidden = 256;
constexpr size_t kStepPasses = 5;
constexpr size_t kContext = 1024;
constexpr size_t kPromptTokens = 16;
constexpr uint64_t kSeed = 7;
constexpr int kAloneTag = 102;  // of MPI_Comm_create_group

// Sizes that the grid of products holds, so that nothing is interpolated.
ModelSpec model_of(size_t hidden, size_t n_layers) {
  ModelSpec spec;
  spec.name = "calibration";
  spec.architecture = "LlamaForCausalLM";
  spec.n_layers = n_layers;
  spec.hidden = hidden;
  spec.n_heads = 8;  // row-parallel sums then have eight chunks, as in most models
  spec.n_kv_heads = 4;
  spec.head_dim = hidden / spec.n_heads;
  spec.ffn = 2 * hidden;
  spec.vocab = 2048;
  spec.context = kContext;
  return spec;
}

// A whole model on one rank or a group of them, in a job of its own size.
planner::Plan plan_of(const ModelSpec& spec, size_t tp, size_t pp) {
  planner::ManualOptions options;
  options.formats = {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
  options.max_sequences = 1;
  options.max_batch_tokens = options.prefill_chunk = 256;
  options.batches_in_flight = pp;
  options.rank_memory_bytes = size_t{1} << 40;
  return planner::manual_plan(spec, planner::balanced_layout(spec, tp, pp), options);
}

planner::EngineProfile own_engine() {
  planner::EngineProfile engine;
  engine.name = "weft";
  return engine;
}

planner::StepSetting setting_of(const ModelSpec& spec, const planner::MachineProfile& profile,
                                const planner::EngineProfile& engine) {
  planner::StepSetting setting;
  setting.model = &spec;
  setting.machine = &profile;
  setting.engine = &engine;
  return setting;
}

StageShape shape_of(const planner::Stage& stage, const ModelSpec& spec) {
  StageShape shape;
  shape.n_layers = stage.layers.size();
  shape.tp = stage.tp;
  shape.has_embedding = stage.layers.begin == 0;
  shape.has_head = stage.layers.end == spec.n_layers;
  return shape;
}

// The layers of a model on this rank alone, without engine and scheduler.
class Layers {
 public:
  Layers(const parallel::MpiSession& session, const ModelSpec& spec, kernels::Stream& stream)
      : stream_(stream),
        plan_(plan_of(spec, 1, 1)),
        shape_(decoder_shape(spec, plan_)),
        alone_(parallel::make_host_communicator(session, std::vector<int>{session.rank()},
                                                kAloneTag, sizeof(float))),
        weights_(load(spec)),
        cache_(plan_.formats, kContext / planner::kKvBlockTokens, spec.n_layers, spec.n_kv_heads,
               spec.head_dim),
        decoder_(shape_, weights_, cache_, *alone_, stream),
        table_(kContext / planner::kKvBlockTokens) {
    std::iota(table_.begin(), table_.end(), 0);
  }

  // Rows of one sequence from position `first` on.
  double time_us(const Rig& rig, size_t first, size_t rows) {
    std::vector<int32_t> positions(rows), sequence(rows, 0), ids(rows, 1);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    const kernels::PagedRows paged{positions.data(), sequence.data(), table_.data(), table_.size(),
                                   rows};
    return rig.time_us(
        [&] {
          decoder_.embed(ids);  // a residual stream that grows from call to call would overflow
          decoder_.forward(paged);
        },
        kPasses);
  }
  void close() { alone_->close(); }

 private:
  static runtime::DecoderShape decoder_shape(const ModelSpec& spec, const planner::Plan& plan) {
    runtime::DecoderShape shape;
    shape.spec = spec;
    shape.shard = planner::shard_shapes(spec, 1, 0);
    shape.formats = plan.formats;
    shape.limits = plan.limits;
    shape.layers = {0, spec.n_layers};
    return shape;
  }
  runtime::StageWeights load(const ModelSpec& spec) {
    const auto source = runtime::make_synthetic(spec, kSeed);
    return runtime::load_weights(*source, spec, plan_, 0, 0, *alone_, {0}, stream_, {}, nullptr);
  }

  kernels::Stream& stream_;
  planner::Plan plan_;
  runtime::DecoderShape shape_;
  std::unique_ptr<parallel::Communicator> alone_;
  runtime::StageWeights weights_;
  runtime::KvCache cache_;
  runtime::Decoder decoder_;
  std::vector<int32_t> table_;
};

// Rank 0 answers some prompts, one after the other; the median over them of the typical time
// between two tokens.
double token_us(runtime::Engine& engine, const planner::Plan& plan, size_t n_tokens) {
  runtime::Scheduler scheduler(plan.limits);
  for (size_t pass = 0; pass < kStepPasses; ++pass) {
    runtime::Request request;
    request.prompt.assign(kPromptTokens, 1);
    request.max_tokens = n_tokens;
    scheduler.add(std::move(request));
  }
  std::vector<double> times, passes;
  RigClock::time_point last;
  engine.drive(scheduler, [&](size_t, const runtime::TokenResults&, size_t) {
    times.push_back(us_since(last));
    last = RigClock::now();
    if (times.size() < n_tokens) return runtime::FinishReason::none;
    times.erase(times.begin());  // what stands before a prompt's first token is not a step
    passes.push_back(typical(times));
    times.clear();
    return runtime::FinishReason::none;
  });
  engine.stop_followers();
  return median(passes);
}

double explained_us(const ModelSpec& spec, const planner::Plan& plan,
                    const planner::MachineProfile& profile, double context) {
  planner::CostSetting setting;
  setting.model = spec;
  setting.engine = own_engine();
  setting.nodes = {{profile, 0, {}}};
  const planner::CostModel costs(setting);
  const planner::StepSetting step = setting_of(setting.model, profile, setting.engine);
  const std::vector<planner::Stage>& stages = plan.replicas.front().stages;
  double ms = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    ms += decode_step(step, shape_of(stages[s], spec), 1, context).total_ms();
    if (s + 1 < stages.size())
      ms += costs.edge({stages[s].tp, stages[s + 1].tp, 0, 0, false}, {1, 1, 1}).decode_ms;
  }
  return ms * 1e3;
}

}  // namespace

double StepTime::step_us() const {
  return std::max(0.0, measured_us - explained_us) / static_cast<double>(n_stages);
}

void time_layers(const Rig& rig, const parallel::MpiSession& session,
                 const planner::MachineProfile& profile, planner::OverheadCurve& curve) {
  struct Case {
    size_t first, rows;
  };
  const planner::EngineProfile engine = own_engine();
  std::vector<planner::LayerRest> rests;
  for (const size_t hidden : {kSmallHidden, kLargeHidden}) {
    const ModelSpec spec = model_of(hidden, kLeastLayers);
    Layers layers(session, spec, rig.stream());
    planner::MachineProfile bare = profile;
    bare.overheads = {{1, "", 0, 0, 1e9, 0, 1e9}};
    const planner::StepSetting setting = setting_of(spec, bare, engine);
    StageShape shape;
    shape.n_layers = spec.n_layers;
    shape.tp = 1;
    constexpr Case cases[] = {{128, 1}, {0, 16}, {0, 64}, {0, 256}};
    std::vector<double> passes[std::size(cases)];
    for (size_t pass = 0; pass < kPasses; ++pass)
      for (size_t i = 0; i < std::size(cases); ++i)
        passes[i].push_back(layers.time_us(rig, cases[i].first, cases[i].rows) / kLeastLayers);
    for (size_t i = 0; i < std::size(cases); ++i) {
      const Case& at = cases[i];
      const planner::StepParts parts =
          at.rows == 1 ? decode_step(setting, shape, 1, static_cast<double>(at.first))
                       : prefill_step(setting, shape, at.rows, 0);
      const double known = parts.total_ms() * 1e3 / kLeastLayers;
      const double us = median(passes[i]);
      spdlog::debug("a layer of hidden {}, {} rows: {:.1f} us, {:.1f} of them explained", hidden,
                    at.rows, us, known);
      rests.push_back({static_cast<double>(at.rows), static_cast<double>(hidden), us - known, us});
    }
    layers.close();
  }
  planner::fit_layer_rest(rests, curve);
}

StepTime time_steps(const parallel::MpiSession& session, size_t tp, size_t n_threads,
                    const planner::MachineProfile& profile, bool quick) {
  const size_t pp = static_cast<size_t>(session.size()) / tp;
  const ModelSpec spec = model_of(kStepHidden, std::max(kLeastLayers, pp));
  const planner::Plan plan = plan_of(spec, tp, pp);
  const auto source = runtime::make_synthetic(spec, kSeed);
  runtime::EngineOptions options;
  options.n_threads = n_threads;
  runtime::Engine engine(session, spec, plan, *source, options);
  StepTime time;
  time.n_stages = plan.replicas.front().stages.size();
  const size_t n_tokens = quick ? 32 : 300;
  if (session.rank() == 0) {
    time.measured_us = token_us(engine, plan, n_tokens);
    const double context = kPromptTokens + static_cast<double>(n_tokens) / 2;
    time.explained_us = explained_us(spec, plan, profile, context);
  } else {
    engine.follow();
  }
  engine.close();
  return time;
}

}  // namespace weft::launch
