// A synthetic folder reads back as it was made, and is whole or not there.
#include "runtime/synth_folder.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/hf_config.h"
#include "runtime/tensor_list.h"
#include "tests/support/command.h"
#include "tests/support/error_text.h"
#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

size_t n_files(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void write(const SynthFolder& synth, const std::string& to, const LoadProgress& progress = {}) {
  kernels::ThreadPool pool(2);
  write_synth_folder(synth, to, pool, progress);
}

void expect_same_values(const planner::ModelSpec& spec, uint64_t seed, const std::string& folder) {
  kernels::ThreadPool pool(2);
  const auto made = make_synthetic(spec, seed);
  const auto read = open_checkpoint(folder, spec);
  for (const NamedShape& tensor : tensor_list(spec)) {
    ASSERT_EQ(read->find(tensor.name)->dtype, spec.dtype);
    const size_t bytes = n_elements(tensor.shape) * dtype_bytes(spec.dtype);
    std::vector<char> a(bytes, 'a'), b(bytes, 'b');
    made->read_rows(tensor.name, 0, tensor.shape[0], a.data(), pool);
    read->read_rows(tensor.name, 0, tensor.shape[0], b.data(), pool);
    EXPECT_EQ(a, b) << tensor.name;
  }
}

TEST(SynthFolder, ReadsBackAsMade) {
  const TemporaryFolder folder;
  SynthFolder synth{test::small_model(), 3};
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    synth.spec.dtype = dtype;
    const std::string to = folder / std::string(dtype_name(dtype));
    write(synth, to + "/");
    planner::ModelSpec back = read_hf_config(to);
    back.name = synth.spec.name;
    EXPECT_EQ(back, synth.spec);
    EXPECT_EQ(n_files(to), 3u);
    expect_same_values(synth.spec, 3, to);
    EXPECT_TRUE(read_generation_defaults(to).eos_ids.empty());
  }
}

TEST(SynthFolder, CutsShards) {
  const TemporaryFolder folder;
  SynthFolder synth{test::small_model(), 3};
  synth.spec.tied_embeddings = true;
  synth.most_shard_bytes = 8000;  // the embedding alone takes 14,448
  size_t last = 0, whole = 0;
  write(synth, folder / "m", [&](size_t done, size_t total) {
    EXPECT_GT(done, last);
    last = done;
    whole = total;
  });
  EXPECT_EQ(whole, 2 * planner::n_parameters(synth.spec));
  EXPECT_EQ(last, whole);
  EXPECT_FALSE(fs::exists(folder / "m/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "m/model.safetensors.index.json"));
  EXPECT_GT(n_files(folder / "m"), 5u);
  expect_same_values(synth.spec, 3, folder / "m");
}

TEST(SynthFolder, FillsAnEmptyFolderButNoOther) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  write({test::small_model(), 3}, folder / "empty");
  EXPECT_EQ(n_files(folder / "empty"), 3u);
  expect_same_values(test::small_model(), 3, folder / "empty");
  EXPECT_ERROR(write({test::small_model(), 3}, folder / "empty"), "is not an empty folder");
  std::ofstream(folder / "file") << "x";
  EXPECT_ERROR(write({test::small_model(), 3}, folder / "file"), "is not an empty folder");
  EXPECT_ERROR(write({test::small_model(), 3}, folder / "absent/m"), "absent", "No such file");
  EXPECT_EQ(n_files(folder.path()), 2u);
}

TEST(SynthFolder, TakesTheTokenizerOver) {
  const TemporaryFolder folder;
  write({test::small_model(), 3}, folder / "a");
  std::ofstream(folder / "a/tokenizer.json") << "{\"tokens\": 3}";
  std::ofstream(folder / "a/generation_config.json")
      << R"({"eos_token_id":[4,5],"bos_token_id":1,"do_sample":true,"temperature":0.5})";
  SynthFolder synth{test::small_model(), 4};
  synth.model_folder = folder / "a";
  write(synth, folder / "b");
  std::ifstream file(folder / "b/tokenizer.json");
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}), "{\"tokens\": 3}");
  const GenerationDefaults back = read_generation_defaults(folder / "b");
  EXPECT_EQ(back.eos_ids, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(back.bos_id, 1);
  EXPECT_EQ(back.sampling.temperature, 0.5f);
}

TEST(SynthFolder, RefusesADiskThatIsTooSmallBeforeItWrites) {
  const TemporaryFolder folder;
  SynthFolder synth{test::small_model(), 3};
  synth.spec.vocab = size_t{1} << 22;
  synth.spec.hidden = size_t{1} << 20;  // 16 TiB of embedding and head
  EXPECT_ERROR(write(synth, folder / "m"), "free", "needs");
  EXPECT_EQ(n_files(folder.path()), 0u);
}

// A file system of 2 MiB in memory, while it lives.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& at) : at_(at) {
    fs::create_directory(at);
    mounted_ = ::mount("weft", at.c_str(), "tmpfs", 0, "size=2m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount(at_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string at_;
  bool mounted_;
};

TEST(SynthFolder, LeavesNothingOnADiskThatFillsUp) {
  const TemporaryFolder folder;
  const std::string disk = folder / "disk";
  const SmallDisk small(disk);
  if (!small.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  const SynthFolder synth{test::small_model(), 3};
  const auto fill = [&](size_t, size_t) {
    std::ofstream(disk + "/filler", std::ios::binary) << std::string(size_t{3} << 20, 'x');
  };
  try {
    write(synth, disk + "/m", fill);
    FAIL() << "a full disk went unnoticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos)
        << error.what();
    EXPECT_EQ(error.status(), 1);
  }
  EXPECT_EQ(n_files(disk), 1u);  // the filler
}

}  // namespace
}  // namespace weft::runtime
