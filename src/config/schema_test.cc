// The table of keys covers the structs and its documentation covers the table.
#include "config/schema.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace wych::config {
namespace {

TEST(Schema, KeysAreUniqueInSectionsAndDocumented) {
  Config config;
  std::set<std::string> seen;
  std::set<std::string_view> known;
  for (const Section& section : sections()) {
    known.insert(section.key);
  }
  for (const Field& field : fields(config)) {
    EXPECT_TRUE(seen.insert(field.key).second) << field.key;
    EXPECT_TRUE(known.contains(field.section())) << field.key;
    EXPECT_FALSE(field.doc.empty()) << field.key;
  }
  for (const std::vector<std::string_view>& group : exclusive_keys()) {
    for (const std::string_view key : group) {
      EXPECT_TRUE(seen.contains(std::string(key))) << key;
    }
  }
}

TEST(Schema, FieldsPointIntoTheGivenConfig) {
  Config config;
  for (const Field& field : fields(config)) {
    if (field.key == "model.moe.top_k") {
      **std::get_if<i64*>(&field.slot) = 7;
    } else if (field.key == "model.norm") {
      std::get_if<Choice>(&field.slot)->set(2);
    }
  }
  EXPECT_EQ(config.model.moe.top_k, 7);
  EXPECT_EQ(config.model.norm, NormPlacement::kPeri);
}

// The bindings stop compiling when a struct gets another member; the counts hold the table to them.
TEST(Schema, EveryMemberHasAKey) {
  Config config;
  const DataSourceConfig& source = config.data.source[std::string(kSourcePlaceholder)];
  std::map<std::string, i64> count;
  for (const Field& field : fields(config)) {
    ++count[std::string(field.section())];
  }
  [[maybe_unused]] const auto& [r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11] = config.run;
  EXPECT_EQ(count["run"], 11);
  [[maybe_unused]] const auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, attention,
                                moe] = config.model;
  EXPECT_EQ(count["model"], 15);
  [[maybe_unused]] const auto& [a1, a2, a3, a4, a5, a6, a7, a8, yarn] = attention;
  EXPECT_EQ(count["model.attention"], 8);
  [[maybe_unused]] const auto& [w1, w2, w3, w4, w5] = yarn;
  EXPECT_EQ(count["model.attention.yarn"], 5);
  [[maybe_unused]] const auto& [e1, e2, e3, e4, e5, router] = moe;
  EXPECT_EQ(count["model.moe"], 5);
  [[maybe_unused]] const auto& [t1, t2, t3, balance] = router;
  EXPECT_EQ(count["model.moe.router"], 3);
  [[maybe_unused]] const auto& [b1, b2] = balance;
  EXPECT_EQ(count["model.moe.router.balance_loss"], 2);
  [[maybe_unused]] const auto& [d1, d2, d3, d4, d5, d6, d7, d8, sources, d9, d10, d11, d12, d13, d14, d15,
                                d16, d17, d18, d19, d20, d21] = config.data;
  EXPECT_EQ(count["data"], 21);
  [[maybe_unused]] const auto& [n1, n2, n3, n4, n5, n6, n7, n8] = source;
  EXPECT_EQ(count["data.source.NAME"], 8);
  [[maybe_unused]] const auto& [o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12, o13, skip] =
      config.optimizer;
  EXPECT_EQ(count["optimizer"], 13);
  [[maybe_unused]] const auto& [k1, k2, k3, k4] = skip;
  EXPECT_EQ(count["optimizer.skip_step"], 4);
  [[maybe_unused]] const auto& [s1, s2, s3, s4, s5, s6, s7] = config.schedule;
  EXPECT_EQ(count["schedule"], 7);
  [[maybe_unused]] const auto& [p1, p2, p3, p4] = config.parallel;
  EXPECT_EQ(count["parallel"], 4);
  [[maybe_unused]] const auto& [c1, c2] = config.precision;
  EXPECT_EQ(count["precision"], 2);
  [[maybe_unused]] const auto& [y1, y2, y3, y4] = config.memory;
  EXPECT_EQ(count["memory"], 4);
  [[maybe_unused]] const auto& [x1, x2, x3, x4] = config.checkpoint;
  EXPECT_EQ(count["checkpoint"], 4);
  [[maybe_unused]] const auto& [l1, l2, l3, l4, l5, l6, l7] = config.log;
  EXPECT_EQ(count["log"], 7);
  EXPECT_EQ(count.size(), sections().size());
}

TEST(Schema, ReferenceListsEveryKeyOnce) {
  Config config;
  config.data.source[std::string(kSourcePlaceholder)] = {};
  const std::string reference = reference_markdown();
  std::size_t rows = 0;
  for (std::size_t at = reference.find("\n| `"); at != std::string::npos;
       at = reference.find("\n| `", at + 1)) {
    ++rows;
  }
  EXPECT_EQ(rows, fields(config).size());
  EXPECT_NE(reference.find("## [model.moe.router]"), std::string::npos);
}

TEST(Range, SaysWhatItAllows) {
  EXPECT_EQ((Range{.low = 0, .open = true}).text(), "above 0");
  EXPECT_EQ((Range{.low = 2}).text(), "at least 2");
  EXPECT_EQ((Range{.low = 0, .high = 1}).text(), "between 0 and 1");
  EXPECT_FALSE((Range{.low = 0, .open = true}).contains(0.0));
  EXPECT_TRUE((Range{.low = 0, .high = 1}).contains(1.0));
}

}  // namespace
}  // namespace wych::config
