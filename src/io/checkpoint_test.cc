// Checkpoints: exact round trip, retention, interrupted saves, and no damage that goes unnoticed.
#include "io/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/hash.h"
#include "io/scratch_folder.h"

namespace wych::io {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  std::vector<NamedTensor> tensors() const {
    const auto view = [](const auto& values) {
      return [bytes = std::as_bytes(std::span(values))] { return bytes; };
    };
    return {{TensorKind::kModel, "w", DType::kF32, {2, 3}, view(weights_)},
            {TensorKind::kOptimizer, "w.m", DType::kF64, {2}, view(moments_)},
            {TensorKind::kModel,
             "a.norm",
             DType::kF32,
             {1},
             [this] { return std::as_bytes(std::span(weights_)).first(4); }},
            {TensorKind::kState, "counts", DType::kI64, {}, view(count_)}};
  }
  std::string save(i64 step, i64 keep = 0) const {
    return save_checkpoint(run_.path(), {step, step * 100, 7, 0}, tensors(), "[run]\nseed = 7\n", keep)
        .value();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(run_ / "checkpoints")) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  ScratchFolder run_;
  std::vector<float> weights_ = {1.0F, 2.0F, -0.0F, 4.5F, 1e-40F, 3e38F};
  std::vector<double> moments_ = {0.1, -1e-300};
  std::vector<i64> count_ = {42};
};

std::string error_text(const Expected<CheckpointReader>& reader) {
  return reader ? "" : reader.error().text();
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

TEST_F(Checkpoint, ReadsBackTheSavedBytes) {
  const std::string dir = save(12);
  EXPECT_TRUE(dir.ends_with("checkpoints/step000012"));
  const Expected<CheckpointReader> reader = CheckpointReader::open(dir);
  ASSERT_TRUE(reader.has_value()) << reader.error().text();
  EXPECT_EQ(reader->meta(), (CheckpointMeta{12, 1200, 7, hash_bytes(std::string_view("[run]\nseed = 7\n"))}));
  ASSERT_EQ(reader->list().size(), 4U);
  EXPECT_EQ(reader->list()[0].name, "a.norm");
  reader->verify().value();
  EXPECT_EQ(reader->config_text().value(), "[run]\nseed = 7\n");
  for (const NamedTensor& tensor : tensors()) {
    const std::span<const std::byte> saved = tensor.content();
    std::vector<std::byte> bytes(saved.size());
    reader->read(tensor.name, tensor.dtype, tensor.shape, bytes).value();
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), saved.begin())) << tensor.name;
  }
  reader->refuse_unknown([](std::string_view) { return true; }).value();
  EXPECT_EQ(find_checkpoint(run_.path()).value(), dir);
  EXPECT_EQ(find_checkpoint(dir).value(), dir);
}

TEST_F(Checkpoint, NamesWhatDoesNotFit) {
  const std::string dir = save(1);
  const CheckpointReader reader = CheckpointReader::open(dir).value();
  std::vector<std::byte> bytes(24);
  const std::vector<i64> shape = {2, 3};
  const std::vector<i64> other = {3, 2};
  expect_contains(reader.read("v", DType::kF32, shape, bytes).error().text(),
                  "step000001: v: is not in this checkpoint");
  expect_contains(reader.read("w", DType::kF32, other, bytes).error().text(),
                  "w: is f32 [2, 3] in the checkpoint, expected f32 [3, 2]");
  expect_contains(reader.read("w", DType::kF64, shape, bytes).error().text(), "expected f64 [2, 3]");
  expect_contains(reader.refuse_unknown([](std::string_view name) { return name != "w.m"; }).error().text(),
                  "w.m: is not part of this model");
}

TEST_F(Checkpoint, KeepsTheNewestAndNeverTheLatestGoes) {
  for (const i64 step : {5, 10, 15, 1000000}) {
    save(step, 2);
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step000015", "step1000000"}));
  save(7, 2);  // after going back: the abandoned future stays, the new one counts from here
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step000007", "step000015", "step1000000"}));
  EXPECT_TRUE(latest_checkpoint(run_.path()).value()->ends_with("step000007"));
}

TEST_F(Checkpoint, IgnoresAndRemovesWhatAKilledSaveLeft) {
  save(1);
  fs::create_directories(run_ / "checkpoints/step000002.tmp123");
  write_bytes(run_ / "checkpoints/step000002.tmp123/model.safetensors", "half");
  EXPECT_TRUE(latest_checkpoint(run_.path()).value()->ends_with("step000001"));
  save(3);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step000001", "step000003"}));
}

TEST_F(Checkpoint, WithoutLatestTheNewestCompleteOneCounts) {
  save(9);
  save(10);
  fs::remove(run_ / "checkpoints/latest");
  fs::create_directories(run_ / "checkpoints/step000011");  // without an index
  EXPECT_TRUE(latest_checkpoint(run_.path()).value()->ends_with("step000010"));
  ASSERT_EQ(list_checkpoints(run_.path()).size(), 2U);
  EXPECT_TRUE(list_checkpoints(run_.path()).front().ends_with("step000009"));
  EXPECT_TRUE(list_checkpoints(run_ / "nothing").empty());
}

TEST_F(Checkpoint, ReplacesOneOfTheSameStep) {
  save(4);
  weights_[0] = 9.0F;
  const std::string dir = save(4);
  const CheckpointReader reader = CheckpointReader::open(dir).value();
  std::vector<float> read(6);
  reader.read("w", DType::kF32, std::vector<i64>{2, 3}, std::as_writable_bytes(std::span(read))).value();
  EXPECT_EQ(read[0], 9.0F);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step000004"}));
}

TEST_F(Checkpoint, LatestThatPointsToNothingIsAnError) {
  EXPECT_FALSE(latest_checkpoint(run_.path()).value().has_value());
  expect_contains(find_checkpoint(run_.path()).error().text(), "is neither a checkpoint nor a run folder");
  const std::string dir = save(1);
  fs::remove(dir + "/index.json");
  expect_contains(latest_checkpoint(run_.path()).error().text(),
                  "latest: names step000001, which is not there");
  write_bytes(run_ / "checkpoints/latest", "../../etc\n");
  expect_contains(latest_checkpoint(run_.path()).error().text(), "expected the name of a checkpoint");
}

TEST_F(Checkpoint, MissingAndShortFilesAreNamed) {
  const std::string dir = save(1);
  fs::resize_file(dir + "/optimizer.safetensors", fs::file_size(dir + "/optimizer.safetensors") - 1);
  expect_contains(error_text(CheckpointReader::open(dir)), "optimizer.safetensors: w.m: lies beyond");
  fs::remove(dir + "/optimizer.safetensors");
  expect_contains(error_text(CheckpointReader::open(dir)), "optimizer.safetensors");
  expect_contains(error_text(CheckpointReader::open(dir)), "(it holds w.m)");
  expect_contains(error_text(CheckpointReader::open(run_ / "nothing")), "nothing/index.json");
}

TEST_F(Checkpoint, EveryDamagedByteIsNoticed) {
  const std::string dir = save(1);
  for (const std::string name : {"index.json", "config.toml", "model.safetensors", "optimizer.safetensors"}) {
    const std::string content = read_bytes(dir + "/" + name);
    // A safetensors header is not used when reading: the index says where the bytes are.
    const std::size_t first = name.ends_with("safetensors") ? content.rfind("   ") + 3 : 0;
    for (std::size_t at = first; at < content.size(); ++at) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      write_bytes(dir + "/" + name, damaged);
      const Expected<CheckpointReader> reader = CheckpointReader::open(dir);
      EXPECT_FALSE(reader.has_value() && reader->verify().has_value()) << name << " byte " << at;
    }
    for (std::size_t length = 0; length < content.size(); length += 3) {
      write_bytes(dir + "/" + name, content.substr(0, length));
      const Expected<CheckpointReader> reader = CheckpointReader::open(dir);
      EXPECT_FALSE(reader.has_value() && reader->verify().has_value()) << name << " cut to " << length;
    }
    write_bytes(dir + "/" + name, content);
  }
  EXPECT_TRUE(CheckpointReader::open(dir)->verify().has_value());
}

// An index with a valid hash that says `tensor` of a file of 64 bytes.
std::string index_error(const std::string& tensor, const std::string& version = "1") {
  const ScratchFolder folder;
  std::string text =
      "{\"format\":\"wych checkpoint\",\"version\":" + version +
      ",\"step\":1,\"tokens\":1,\"seed\":1,\"config_xxh3\":\"0000000000000000\",\n\"tensors\":[\n" + tensor +
      "]";
  text += fmt::format(",\n\"index_xxh3\":\"{:016x}\"}}\n", hash_bytes(std::string_view(text)));
  write_bytes(folder / "index.json", text);
  write_bytes(folder / "f", std::string(64, 'x'));
  return error_text(CheckpointReader::open(folder.path()));
}

std::string slice(i64 begin, i64 end, const std::string& file = "f", const std::string& offset = "0") {
  return fmt::format(
      R"({{"begin":{},"end":{},"file":"{}","offset":{},"xxh3":"{:016x}"}})", begin, end, file, offset,
      hash_bytes(std::string_view(std::string(static_cast<std::size_t>(end - begin) * 4, 'x'))));
}

std::string tensor(const std::string& slices, const std::string& shape = "[4]",
                   const std::string& dtype = "f32") {
  return fmt::format(R"({{"name":"t","dtype":"{}","shape":{},"slices":[{}]}})", dtype, shape, slices);
}

TEST(CheckpointIndex, SlicesMustCoverTheTensorOnce) {
  EXPECT_EQ(index_error(tensor(slice(0, 4))), "");
  EXPECT_EQ(index_error(tensor(slice(0, 1) + "," + slice(1, 4, "f", "20"))), "");
  expect_contains(index_error(tensor(slice(0, 1) + "," + slice(2, 4))), "t: elements [1, 2) are missing");
  expect_contains(index_error(tensor(slice(0, 3) + "," + slice(2, 4))), "t: elements [2, 3) are there twice");
  expect_contains(index_error(tensor(slice(0, 3))), "t: slices end at element 3, shape [4] has 4");
  expect_contains(index_error(tensor(slice(0, 4)) + "," + tensor(slice(0, 4))), "t: is there twice");
}

TEST(CheckpointIndex, RefusesWhatItCannotTrust) {
  expect_contains(index_error(tensor(slice(0, 4)), "2"), "has format version 2, this program reads 1");
  expect_contains(index_error(tensor(slice(0, 4), "[4]", "f31")), "t: unknown dtype");
  expect_contains(index_error(tensor(slice(0, 4), "[-4]")), "is not valid");
  expect_contains(index_error(tensor(slice(0, 4), "[4611686018427387904, 4]")), "is not valid");
  expect_contains(index_error(tensor(slice(0, 4, "../f"))), "slice 0 is malformed");
  expect_contains(index_error(tensor(slice(0, 4, "f", "-1"))), "slice 0 is malformed");
  expect_contains(index_error(tensor(slice(0, 4, "f", "49"))), "f: t: lies beyond the file's 64 bytes");
  expect_contains(index_error(tensor(slice(0, 4, "f", "9223372036854775807"))), "lies beyond");
  expect_contains(index_error("3"), "tensor 0 has no name");
}

}  // namespace
}  // namespace wych::io
