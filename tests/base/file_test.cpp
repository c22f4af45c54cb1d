// Reads that never trust a size, and writes that leave the old file or the new one.
#include "runtime/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "weft-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string made(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  size_t n_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

template <class F>
void expect_error(F&& f, int status, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error, though expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(error.status(), status) << error.what();
  }
}

TEST_F(FileTest, ReadsExactlyWhatIsAskedFor) {
  const File file = File::open_read(made("a", "0123456789"));
  EXPECT_EQ(file.bytes(), 10u);
  EXPECT_EQ(file.path(), path("a"));
  std::string got(4, '?');
  file.read_at(3, got.data(), 3);
  EXPECT_EQ(got, "345?");
  file.read_at(10, nullptr, 0);
}

TEST_F(FileTest, RefusesToReadBeyondTheEnd) {
  const File file = File::open_read(made("a", "0123456789"));
  char got[16];
  expect_error([&] { file.read_at(8, got, 3); }, 2, "3 bytes at offset 8 go beyond its end at 10");
  expect_error([&] { file.read_at(11, got, 0); }, 2, "offset 11");
  expect_error([&] { file.read_at(UINT64_MAX, got, 2); }, 2, "beyond its end");  // would wrap
  expect_error([&] { file.read_at(2, got, SIZE_MAX); }, 2, "beyond its end");
}

TEST_F(FileTest, NoticesAFileThatIsCutWhileItIsRead) {
  const File file = File::open_read(made("a", "0123456789"));
  fs::resize_file(path("a"), 4);
  char got[10];
  expect_error([&] { file.read_at(0, got, 10); }, 1, "was cut at offset 4");
}

TEST_F(FileTest, NamesWhatCanNotBeOpened) {
  expect_error([&] { File::open_read(path("none")); }, 2, path("none") + ": No such file");
  expect_error([&] { File::open_read(folder_.string()); }, 2, "is not a regular file");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int keep_open = open(path("pipe").c_str(), O_RDWR);  // or opening it would wait
  expect_error([&] { File::open_read(path("pipe")); }, 2, "is not a regular file");
  close(keep_open);
}

TEST_F(FileTest, MovesItsDescriptor) {
  File a = File::open_read(made("a", "aa"));
  File b = std::move(a);
  EXPECT_EQ(a.fd(), -1);
  const int old = b.fd();
  b = File::open_read(made("b", "bbb"));
  EXPECT_EQ(b.bytes(), 3u);
  EXPECT_EQ(fcntl(old, F_GETFD), -1) << "the first descriptor was left open";
}

TEST_F(FileTest, ReadsWholeTextsUpToALimit) {
  EXPECT_EQ(read_text(made("a", std::string("x\0y", 3)), 3), std::string("x\0y", 3));
  EXPECT_EQ(read_text(made("empty", ""), 0), "");
  expect_error([&] { read_text(path("a"), 2); }, 2, "has 3 bytes; at most 2 are read");
}

TEST_F(FileTest, WritesAndReplaces) {
  write_file(path("a"), "first, and longer");
  write_file(path("a"), "second");
  EXPECT_EQ(read_text(path("a"), 100), "second");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FileTest, LeavesNothingWhereItCanNotWrite) {
  expect_error([&] { write_file(path("none/a"), "x"); }, 2, "cannot write " + path("none/a"));
  fs::create_directories(path("folder/inside"));
  expect_error([&] { write_file(path("folder"), "x"); }, 2, "cannot write " + path("folder"));
  EXPECT_EQ(n_files(), 1u);
}

// A limit on the size of files fails writes half way, as a full disk does, for any user.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    old_handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_{};
  sighandler_t old_handler_;
};

TEST_F(FileTest, AWriteThatFailsHalfWayKeepsTheOldFile) {
  write_file(path("a"), "old");
  {
    const FileSizeLimit limit(64 << 10);
    expect_error([&] { write_file(path("a"), std::string(100 << 10, 'x')); }, 1,
                 path("a") + ".part");
  }
  EXPECT_EQ(read_text(path("a"), 100), "old");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FileTest, AFullDiskKeepsTheOldFile) {
  const std::string disk = path("disk");
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "cannot mount a small disk: " << std::strerror(errno);
  write_file(disk + "/a", "old");
  expect_error([&] { write_file(disk + "/a", std::string(100 << 10, 'x')); }, 1,
               "No space left on device");
  EXPECT_EQ(read_text(disk + "/a", 100), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(disk), {}), 1);
  EXPECT_EQ(umount(disk.c_str()), 0);
}

TEST_F(FileTest, TellsFilesFromFolders) {
  made("a", "x");
  EXPECT_TRUE(is_file(path("a")));
  EXPECT_FALSE(is_folder(path("a")));
  EXPECT_TRUE(is_folder(folder_.string()));
  EXPECT_FALSE(is_file(folder_.string()));
  EXPECT_FALSE(is_file(path("none")) || is_folder(path("none")));
}

}  // namespace
}  // namespace weft
