// Folders with one thing wrong each, made from a good one.
#include "runtime/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/safetensors_writer.h"
#include "runtime/tensor_list.h"
#include "tests/support/command.h"
#include "tests/support/error_text.h"
#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;
using planner::ModelSpec;
using test::TemporaryFolder;

// Every tensor of the model, all zero but for its first element.
class Tensors {
 public:
  explicit Tensors(const ModelSpec& spec, DType dtype = DType::bf16) {
    for (const NamedShape& shape : tensor_list(spec)) add(shape.name, dtype, shape.shape);
  }
  void add(const std::string& name, DType dtype, const std::vector<size_t>& shape) {
    bytes_.emplace_back(n_elements(shape) * dtype_bytes(dtype), '\0');
    if (!bytes_.back().empty()) bytes_.back()[0] = static_cast<char>(bytes_.size());
    list_.push_back({name, dtype, shape, nullptr});
  }
  void remove(const std::string& name) {
    for (size_t i = 0; i < list_.size(); ++i)
      if (list_[i].name == name) list_[i].name = "unused." + name;
  }
  NamedTensor& at(const std::string& name) {
    for (NamedTensor& tensor : list_)
      if (tensor.name == name) return tensor;
    throw std::out_of_range(name);
  }
  void write(const std::string& path, size_t begin = 0, size_t end = SIZE_MAX) {
    for (size_t i = 0; i < list_.size(); ++i) list_[i].data = bytes_[i].data();
    const auto first = list_.begin();
    end = std::min(end, list_.size());
    write_safetensors(path, {first + static_cast<long>(begin), first + static_cast<long>(end)});
  }
  size_t size() const { return list_.size(); }
  const std::string& name(size_t i) const { return list_[i].name; }

 private:
  std::vector<NamedTensor> list_;
  std::vector<std::string> bytes_;
};

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Two shards and their index.
nlohmann::json write_shards(const TemporaryFolder& folder, Tensors& tensors) {
  const size_t half = tensors.size() / 2;
  tensors.write(folder / "model-00001-of-00002.safetensors", 0, half);
  tensors.write(folder / "model-00002-of-00002.safetensors", half);
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", {}}};
  for (size_t i = 0; i < tensors.size(); ++i)
    index["weight_map"][tensors.name(i)] =
        i < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  write_text(folder / "model.safetensors.index.json", index.dump());
  return index;
}

TEST(Checkpoint, ReadsRowsOfOneFile) {
  const TemporaryFolder folder;
  ModelSpec spec = test::full_model();
  Tensors tensors(spec);
  tensors.write(folder / "model.safetensors");
  const auto source = open_checkpoint(folder.path(), spec);
  for (const NamedShape& needed : tensor_list(spec)) {
    const TensorInfo* info = source->find(needed.name);
    ASSERT_NE(info, nullptr) << needed.name;
    EXPECT_EQ(info->shape, needed.shape);
    EXPECT_EQ(info->dtype, DType::bf16);
  }
  EXPECT_EQ(source->find("model.layers.3.mlp.up_proj.weight"), nullptr);
  kernels::ThreadPool pool(2);
  std::vector<char> row(spec.hidden * 2, 'x');
  source->read_rows(tensors.name(0), 0, 1, row.data(), pool);
  EXPECT_EQ(row[0], 1);  // the first tensor's mark
  source->read_rows(tensors.name(0), 300, 301, row.data(), pool);
  EXPECT_EQ(row, std::vector<char>(spec.hidden * 2, '\0'));
  EXPECT_EQ(source->bytes_read(), 2 * row.size());
  EXPECT_THROW(source->read_rows(tensors.name(0), 300, 302, row.data(), pool), Error);
  EXPECT_THROW(source->read_rows("nothing", 0, 1, row.data(), pool), Error);
}

TEST(Checkpoint, ReadsShards) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors tensors(spec, DType::f16);
  write_shards(folder, tensors);
  const auto source = open_checkpoint(folder.path(), spec);
  kernels::ThreadPool pool(1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<char> row(n_elements(source->find(tensors.name(i))->shape) * 2);
    source->read_rows(tensors.name(i), 0, source->find(tensors.name(i))->shape[0], row.data(),
                      pool);
    EXPECT_EQ(row[0], static_cast<char>(i + 1)) << tensors.name(i);
  }
}

TEST(Checkpoint, TiedHeadMayBeThereOrNot) {
  const TemporaryFolder folder;
  ModelSpec spec = test::small_model();
  Tensors tensors(spec);
  tensors.remove(kHeadName);
  tensors.write(folder / "model.safetensors");
  EXPECT_ERROR(open_checkpoint(folder.path(), spec), "lm_head.weight is not in");
  spec.tied_embeddings = true;
  EXPECT_NE(open_checkpoint(folder.path(), spec), nullptr);
  Tensors with_head(test::small_model());
  with_head.write(folder / "model.safetensors");
  EXPECT_EQ(open_checkpoint(folder.path(), spec)->find(kHeadName), nullptr);
}

TEST(Checkpoint, ToleratesTensorsItDoesNotNeed) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors tensors(spec);
  tensors.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {3});
  tensors.add("other", DType::f32, {3});
  tensors.write(folder / "model.safetensors");
  EXPECT_EQ(open_checkpoint(folder.path(), spec)->find("other"), nullptr);
}

TEST(Checkpoint, SaysAllThatIsWrongAtOnce) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors tensors(spec);
  tensors.remove("model.norm.weight");
  NamedTensor& down = tensors.at("model.layers.1.mlp.down_proj.weight");
  std::swap(down.shape[0], down.shape[1]);
  tensors.write(folder / "model.safetensors");
  EXPECT_ERROR(open_checkpoint(folder.path(), spec), "2 problems",
               "model.norm.weight is not in model.safetensors",
               "model.layers.1.mlp.down_proj.weight in model.safetensors has shape [37, 24]",
               "asks for [24, 37]");
}

TEST(Checkpoint, RefusesADtypeItDoesNotHave) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors(spec).write(folder / "model.safetensors");
  const std::string path = folder / "model.safetensors";
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t at = bytes.find("\"BF16\"", bytes.find("model.norm.weight"));
  bytes.replace(at, 6, "\"I16\" ");
  write_text(path, bytes);
  EXPECT_ERROR(open_checkpoint(folder.path(), spec), "has dtype \"I16\"",
               "supported are F32, F16 and BF16");
}

TEST(Checkpoint, RefusesAMissingShard) {
  const TemporaryFolder folder;
  Tensors tensors(test::small_model());
  write_shards(folder, tensors);
  fs::remove(folder / "model-00002-of-00002.safetensors");
  EXPECT_ERROR(open_checkpoint(folder.path(), test::small_model()),
               "model-00002-of-00002.safetensors", "No such file");
}

TEST(Checkpoint, RefusesAnIndexThatDoesNotFit) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors tensors(spec);
  nlohmann::json index = write_shards(folder, tensors);
  const std::string path = folder / "model.safetensors.index.json";
  index["weight_map"][kEmbeddingName] = "model-00002-of-00002.safetensors";
  index["weight_map"].erase(kFinalNormName);
  write_text(path, index.dump());
  EXPECT_ERROR(open_checkpoint(folder.path(), spec),
               "model.embed_tokens.weight is not in model-00002-of-00002.safetensors",
               "model.norm.weight is not in model.safetensors.index.json");
}

TEST(Checkpoint, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x", "/etc/passwd", "a/b", "..", ".", ""}) {
    const nlohmann::json index = {{"weight_map", {{"t", name}}}};
    EXPECT_ERROR(parse_checkpoint_index(index.dump(), "i.json"), "not a plain file name");
  }
  EXPECT_ERROR(parse_checkpoint_index(R"({"weight_map":{"t":3}})", "i.json"),
               "\"t\" is 3, not a plain file name");
  EXPECT_ERROR(parse_checkpoint_index(R"({"weight_map":{}})", "i.json"), "empty");
  EXPECT_ERROR(parse_checkpoint_index(R"({"weight_map":[]})", "i.json"), "needs an object");
  EXPECT_ERROR(parse_checkpoint_index("{", "i.json"), "i.json: not valid JSON at byte");
}

TEST(Checkpoint, RefusesAFolderWithoutWeights) {
  const TemporaryFolder folder;
  EXPECT_ERROR(open_checkpoint(folder.path(), test::small_model()),
               "neither model.safetensors nor model.safetensors.index.json");
  EXPECT_ERROR(open_checkpoint(folder / "absent", test::small_model()), "absent", "No such file");
}

TEST(Checkpoint, SaysThatAFileShrankWhileItWasRead) {
  const TemporaryFolder folder;
  const ModelSpec spec = test::small_model();
  Tensors(spec).write(folder / "model.safetensors");
  const auto source = open_checkpoint(folder.path(), spec);
  fs::resize_file(folder / "model.safetensors", 5000);
  kernels::ThreadPool pool(1);
  std::vector<char> rows(spec.vocab * spec.hidden * 2);
  EXPECT_ERROR(source->read_rows(kHeadName, 0, spec.vocab, rows.data(), pool),
               "model.safetensors was cut at offset");
}

TEST(Checkpoint, RefusesAModelWithExperts) {
  ModelSpec spec = test::small_model();
  spec.n_experts = 8;
  EXPECT_ERROR(open_checkpoint("x", spec), "has 8 experts");
}

}  // namespace
}  // namespace weft::runtime
