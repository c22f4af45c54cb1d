// Writes a Hugging Face folder of synthetic weights, whole or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/weights.h"

namespace weft::runtime {

struct SynthFolder {
  planner::ModelSpec spec;
  uint64_t seed = 0;
  size_t most_shard_bytes = size_t{5} << 30;  // a larger tensor gets a shard of its own
  // Whose tokenizer and generation settings are taken over, or empty.
  std::string model_folder = {};
};

// Writes config.json, generation_config.json, model.safetensors (or shards and their index) and the
// tokenizer's files under another name, then renames. Throws Error and leaves nothing behind where
// `to` is neither absent nor an empty folder, where the disk has too little room, or where it fills
// up on the way. `progress` gets the bytes of weights written.
void write_synth_folder(const SynthFolder& synth, const std::string& to, kernels::ThreadPool& pool,
                        const LoadProgress& progress);

}  // namespace weft::runtime
