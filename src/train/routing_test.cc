// The routing record: its measure, its file; and loads gathered over a run.
#include "train/routing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/scratch_folder.h"
#include "train/load_history.h"
#include "train/report_cases.h"

namespace wych::train {
namespace {

TEST(Routing, InformationIsThatOfTheExtremes) {
  EXPECT_EQ(domain_information({{3, 1}, {6, 2}}), 0);
  EXPECT_DOUBLE_EQ(domain_information({{5, 0, 0}, {0, 1, 1}}), 1);
  EXPECT_DOUBLE_EQ(domain_information({{1, 0}, {0, 9}, {0, 0}}), 1);  // nothing routed: left out
  // One expert of two for domain 0, both alike for domain 1: log2 is taken over means 3/4 and 1/4.
  EXPECT_NEAR(domain_information({{8, 0}, {4, 4}}),
              0.5 * std::log2(1 / 0.75) + 0.25 * std::log2(0.5 / 0.75) + 0.25 * std::log2(0.5 / 0.25), 1e-15);
  EXPECT_EQ(domain_information({}), 0);
}

TEST(Routing, DetailedLayersAreEvenlySpread) {
  EXPECT_EQ(detailed_layers(0), (std::vector<i64>{}));
  EXPECT_EQ(detailed_layers(1), (std::vector<i64>{0}));
  EXPECT_EQ(detailed_layers(4), (std::vector<i64>{0, 1, 2, 3}));
  EXPECT_EQ(detailed_layers(64), (std::vector<i64>{0, 12, 25, 37, 50, 63}));
}

TEST(Routing, ReadsBackAndRefusesWhatDoesNotFit) {
  const io::ScratchFolder run;
  EXPECT_TRUE(read_routing(run.path()).value().empty());
  const RoutingRecord written = small_routing();
  write_routing(run.path(), written).value();
  const RoutingRecord read = read_routing(run.path()).value();
  EXPECT_EQ(read.counts, written.counts);
  EXPECT_EQ(read.favourites, written.favourites);
  EXPECT_EQ(read.domains, written.domains);
  ASSERT_EQ(read.texts.size(), 1U);
  EXPECT_EQ(read.texts[0].layers[0].experts, written.texts[0].layers[0].experts);
  EXPECT_EQ(read.texts[0].layers[1].weights, written.texts[0].layers[1].weights);
  RoutingRecord wrong = written;
  wrong.texts[0].layers[0].experts[0] = 4;  // there is none
  write_routing(run.path(), wrong).value();
  EXPECT_FALSE(read_routing(run.path()).has_value());
  wrong = written;
  wrong.counts[1].pop_back();
  write_routing(run.path(), wrong).value();
  EXPECT_FALSE(read_routing(run.path()).has_value());
}

TEST(LoadHistory, JoinsNeighboursAndLosesNothing) {
  LoadHistory history;
  const i64 steps = 5000;
  for (i64 step = 1; step <= steps; ++step) {
    history.add(step, {{3, {1, step % 2}}});
  }
  const std::vector<LoadSpan> spans = history.spans();
  EXPECT_LE(spans.size(), 320U);
  EXPECT_GE(spans.size(), 100U);
  i64 first = 0;
  i64 second = 0;
  i64 next = 1;
  for (const LoadSpan& span : spans) {
    EXPECT_EQ(span.first_step, next);
    next = span.last_step + 1;
    first += span.counts.at(3)[0];
    second += span.counts.at(3)[1];
  }
  EXPECT_EQ(next, steps + 1);
  EXPECT_EQ(first, steps);
  EXPECT_EQ(second, steps / 2);
}

}  // namespace
}  // namespace wych::train
