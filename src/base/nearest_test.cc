// Distances by kind of edit; suggestions only when near.
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace wych {
namespace {

TEST(EditDistance, CountsEachKindOfEditOnce) {
  EXPECT_EQ(edit_distance("experts", "experts"), 0);
  EXPECT_EQ(edit_distance("", "ep"), 2);
  EXPECT_EQ(edit_distance("ep", ""), 2);
  EXPECT_EQ(edit_distance("expert", "experts"), 1);
  EXPECT_EQ(edit_distance("experts", "expects"), 1);
  EXPECT_EQ(edit_distance("exprets", "experts"), 1);  // a swap
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("D-Model", "d_model"), 0);
}

TEST(NearestName, SuggestsTheClosestAndTheFirstOfEquals) {
  const std::vector<std::string> names = {"d_model", "n_layers", "n_heads", "n_kv_heads",
                                          "top_k",   "ep",       "pp"};
  EXPECT_EQ(nearest_name("n_layer", names), "n_layers");
  EXPECT_EQ(nearest_name("topk", names), "top_k");
  EXPECT_EQ(nearest_name("n_haeds", names), "n_heads");
  EXPECT_EQ(nearest_name("dp", names), "ep");
}

TEST(NearestName, StaysSilentWhenNothingIsNear) {
  const std::vector<std::string> names = {"d_model", "n_layers"};
  EXPECT_EQ(nearest_name("learning_rate", names), std::nullopt);
  EXPECT_EQ(nearest_name("d_model", {}), std::nullopt);
}

}  // namespace
}  // namespace wych
