// Rotary angles under none, linear, llama3 and YaRN scaling.
#include "runtime/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::runtime {
namespace {

using planner::RopeScaling;
using planner::RopeSpec;

constexpr double kTwoPi = 2 * std::numbers::pi;

// Long waves are stretched by the factor, short ones kept, those between are blended.
double llama3_frequency(const RopeSpec& rope, double frequency) {
  const double original = static_cast<double>(rope.original_context);
  const double wavelength = kTwoPi / frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  const double blend = (original / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

// The dimension whose wave turns `rotations` times within the original context.
double yarn_dimension(const RopeSpec& rope, double rotations, size_t head_dim) {
  const double turns = static_cast<double>(rope.original_context) / (rotations * kTwoPi);
  return static_cast<double>(head_dim) * std::log(turns) / (2 * std::log(rope.theta));
}

// Share of the unscaled frequency that dimension i keeps: 1 for short waves, 0 for long ones.
double yarn_kept(const RopeSpec& rope, size_t i, size_t head_dim) {
  double low = yarn_dimension(rope, rope.beta_fast, head_dim);
  double high = yarn_dimension(rope, rope.beta_slow, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  return 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

double scaled_frequency(const RopeSpec& rope, double frequency, size_t i, size_t head_dim) {
  switch (rope.scaling) {
    case RopeScaling::none:
      return frequency;
    case RopeScaling::linear:
      return frequency / rope.factor;
    case RopeScaling::llama3:
      return llama3_frequency(rope, frequency);
    case RopeScaling::yarn: {
      const double kept = yarn_kept(rope, i, head_dim);
      return frequency / rope.factor * (1 - kept) + frequency * kept;
    }
  }
  return frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& rope, size_t head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (size_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    frequencies[i] = static_cast<float>(scaled_frequency(rope, frequency, i, head_dim));
  }
  return frequencies;
}

float rope_attention_factor(const RopeSpec& rope) {
  if (rope.scaling != RopeScaling::yarn) return 1.0f;
  if (rope.attention_factor > 0) return static_cast<float>(rope.attention_factor);
  return rope.factor <= 1 ? 1.0f : static_cast<float>(0.1 * std::log(rope.factor) + 1.0);
}

std::vector<float> rope_table(const RopeSpec& rope, size_t head_dim, size_t context) {
  const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
  const double factor = rope_attention_factor(rope);
  std::vector<float> table;
  table.reserve(context * head_dim);
  for (size_t position = 0; position < context; ++position)
    for (float frequency : frequencies) {
      const double angle = static_cast<float>(position) * frequency;
      table.push_back(static_cast<float>(std::cos(angle) * factor));
      table.push_back(static_cast<float>(std::sin(angle) * factor));
    }
  return table;
}

}  // namespace weft::runtime
