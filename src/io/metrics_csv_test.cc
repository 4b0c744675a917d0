// Tables: columns, rows, quoting and what a resumption takes back.
#include "io/metrics_csv.h"

#include <gtest/gtest.h>

#include "io/metrics.h"
#include "io/scratch_folder.h"

namespace wych::io {
namespace {

Expected<std::string> table(const ScratchFolder& run) {
  std::string out;
  const Expected<void> done = metrics_to_csv(run.path(), [&](std::string_view piece) -> Expected<void> {
    out += piece;
    return {};
  });
  return done ? Expected<std::string>(out) : Expected<std::string>(done.error());
}

std::string csv_of(const std::string& jsonl) {
  const ScratchFolder run;
  write_bytes(run / "metrics.jsonl", jsonl);
  return table(run).value();
}

TEST(MetricsCsv, IsARowAStepAndAColumnAMetric) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a\":0.1,\"b\":2}\n{\"step\":2,\"b\":-3,\"c\":true}\n"),
            "step,a,b,c\r\n1,0.1,2,\r\n2,,-3,true\r\n");
}

TEST(MetricsCsv, AnArrayIsAColumnAnElement) {
  EXPECT_EQ(csv_of("{\"step\":1,\"load\":[5,null],\"x\":1}\n{\"step\":2,\"load\":[6,7,8],\"o\":{\"p\":1}}\n"),
            "step,load[0],load[1],x,load[2]\r\n1,5,nan,1,\r\n2,6,7,,8\r\n");
}

TEST(MetricsCsv, WhatIsNotFiniteIsNan) {
  EXPECT_EQ(csv_of("{\"step\":7,\"train/CE loss\":null}\n"), "step,train/CE loss\r\n7,nan\r\n");
}

TEST(MetricsCsv, QuotesWhatWouldBreakTheTable) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a,b\":\"say \\\"no\\\"\",\"c\":\"two\\nlines\"}\n"),
            "step,\"a,b\",c\r\n1,\"say \"\"no\"\"\",\"two\nlines\"\r\n");
}

TEST(MetricsCsv, LinesOfAStepAreOneRowAndTheLaterValueStands) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a\":1,\"b\":1}\n{\"step\":1,\"b\":2,\"c\":3}\n"),
            "step,a,b,c\r\n1,1,2,3\r\n");
}

TEST(MetricsCsv, AResumptionTakesBackItsStepAndAllAfter) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2,\"eval\":9}\n{\"step\":3,\"a\":3}\n"
                   "{\"step\":2,\"a\":20}\n"),
            "step,a,eval\r\n1,1,\r\n2,20,\r\n");
}

TEST(MetricsCsv, ATornLastLineIsPassedOver) {
  EXPECT_EQ(csv_of("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\""), "step,a\r\n1,1\r\n");
  EXPECT_EQ(csv_of(""), "step\r\n");
}

TEST(MetricsCsv, KeepsEveryBitOfWhatTheWriterWrote) {
  const ScratchFolder run;
  MetricsWriter writer = MetricsWriter::open(run.path(), 0).value();
  writer.write(1, JsonObject().add("x", 1.0 / 3).add("y", 1e-300)).value();
  EXPECT_EQ(table(run).value(), "step,x,y\r\n1,0.3333333333333333,1e-300\r\n");
}

TEST(MetricsCsv, ErrorsNameFileAndLine) {
  const ScratchFolder run;
  EXPECT_NE(table(run).error().text().find("metrics.jsonl"), std::string::npos);
  write_bytes(run / "metrics.jsonl", "{\"step\":1}\nhello\n");
  EXPECT_NE(table(run).error().text().find("metrics.jsonl:2"), std::string::npos);
  write_bytes(run / "metrics.jsonl", "{\"a\":1}\n");
  EXPECT_EQ(table(run).error().kind, ErrorKind::kData);
}

}  // namespace
}  // namespace wych::io
