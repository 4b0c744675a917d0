// Records: a line a step, cut at the resumed step, whole after a kill.
#include "io/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/scratch_folder.h"

namespace wych::io {
namespace {

void write_steps(const std::string& run, i64 resumed, i64 first, i64 last) {
  MetricsWriter writer = MetricsWriter::open(run, resumed).value();
  for (i64 step = first; step <= last; ++step) {
    writer.write(step, JsonObject().add("train/CE loss", 1.0 / static_cast<double>(step))).value();
  }
}

TEST(Metrics, AppendsALineAStepAndNullForWhatIsNotFinite) {
  const ScratchFolder run;
  MetricsWriter writer = MetricsWriter::open(run.path(), 0).value();
  const std::vector<double> loads = {1.0, 2.5};
  writer.write(1, JsonObject().add("train/CE loss", 0.1).add("optim/total grad norm", std::nan(""))).value();
  writer.write(2, JsonObject().add("moe/block 0/load", loads)).value();
  writer.write(3, {}).value();
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"),
            "{\"step\":1,\"train/CE loss\":0.1,\"optim/total grad norm\":null}\n"
            "{\"step\":2,\"moe/block 0/load\":[1,2.5]}\n{\"step\":3}\n");
}

TEST(Metrics, ResumeCutsLaterStepsAndATornLine) {
  const ScratchFolder run;
  write_steps(run.path(), 0, 1, 5);
  const std::string full = read_bytes(run / "metrics.jsonl");
  write_bytes(run / "metrics.jsonl", full + "{\"step\":6,\"tra");
  write_steps(run.path(), 3, 4, 5);
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"), full);
  write_bytes(run / "metrics.jsonl", full + "{\"step\":6,\"tra");
  write_steps(run.path(), 9, 1, 0);
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"), full);
  write_steps(run.path(), 0, 1, 0);
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"), "");
}

TEST(Metrics, RefusesToCutAForeignFile) {
  const ScratchFolder run;
  for (const std::string foreign : {"hello\n", "{\"step\":1}\n{\"a\":2}\n", "{\"step\":1.5}\n", "[1]\n"}) {
    write_bytes(run / "metrics.jsonl", foreign);
    const Expected<MetricsWriter> writer = MetricsWriter::open(run.path(), 5);
    ASSERT_FALSE(writer.has_value()) << foreign;
    EXPECT_NE(writer.error().text().find("metrics.jsonl:"), std::string::npos);
    EXPECT_EQ(read_bytes(run / "metrics.jsonl"), foreign);
  }
}

TEST(Events, AppendAndCloseATornLine) {
  const ScratchFolder run;
  write_bytes(run / "events.jsonl", "{\"event\":\"a\"");
  EventsWriter writer = EventsWriter::open(run.path()).value();
  writer.write(4, "overflow", JsonObject().add("layer", 2)).value();
  const std::string text = read_bytes(run / "events.jsonl");
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const std::string line = text.substr(text.find('\n') + 1);
  const Json json = parse_json(line, "line", ErrorKind::kData).value();
  EXPECT_EQ(*json.find("event")->get<std::string>(), "overflow");
  EXPECT_EQ(*json.find("step")->get<i64>(), 4);
  EXPECT_EQ(*json.find("layer")->get<i64>(), 2);
  EXPECT_GT(*json.find("time")->get<double>(), 1.7e9);
}

TEST(Environment, IsOneJsonObject) {
  const ScratchFolder run;
  write_environment(run.path(), environment().add("launcher", "none")).value();
  const Json json = parse_json(read_bytes(run / "env.json"), "env.json", ErrorKind::kData).value();
  EXPECT_GE(*json.find("cores")->get<i64>(), 1);
  EXPECT_GT(*json.find("memory_bytes")->get<i64>(), 0);
  EXPECT_FALSE(json.find("processor")->get<std::string>()->empty());
  EXPECT_NE(json.find("launcher"), nullptr);
}

}  // namespace
}  // namespace wych::io
