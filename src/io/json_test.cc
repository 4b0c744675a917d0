// JSON: strict reading, exact writing.
#include "io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace wych::io {
namespace {

Expected<Json> parse(std::string_view text) { return parse_json(text, "test", ErrorKind::kData); }

TEST(Json, ReadsEveryTypeInOrder) {
  const Expected<Json> json =
      parse(R"({"b":[1,-2.5,null],"a":{"x":"\u00e9"},"t":true,"big":18446744073709551615})");
  ASSERT_TRUE(json.has_value()) << json.error().text();
  const Json::Object& object = *json->get<Json::Object>();
  EXPECT_EQ(object[0].key, "b");
  const Json::Array& array = *json->find("b")->get<Json::Array>();
  EXPECT_EQ(*array[0].get<i64>(), 1);
  EXPECT_EQ(*array[1].get<double>(), -2.5);
  EXPECT_TRUE(array[2].is_null());
  EXPECT_EQ(*json->find("a")->find("x")->get<std::string>(), "\xc3\xa9");
  double number = 0.0;
  EXPECT_TRUE(json->find("big")->number(number));
  EXPECT_EQ(number, 0x1p64);
  EXPECT_EQ(json->find("c"), nullptr);
  EXPECT_FALSE(json->find("t")->number(number));
}

TEST(Json, RefusesWhatIsNotStrictlyJson) {
  for (const std::string_view text :
       {"", " ", "{", "{} x", "[1,]", "{\"a\":1,}", "nan", "{a:1}", "'a'", "[1", "\"\xff\"",
        "\"\xed\xa0\x80\"", "01", "{\"a\":1,\"a\":2}", "{\"b\":{\"\":1,\"\":2}}", "\x00", "1e999"}) {
    EXPECT_FALSE(parse(text).has_value()) << text;
  }
  EXPECT_NE(parse("[{\"a\":1,\"a\":2}]").error().text().find("\"a\" stands twice"), std::string::npos);
  EXPECT_FALSE(parse(std::string(100'000, '[')).has_value()) << "nesting is bounded";
}

TEST(Json, WritesWhatItReads) {
  JsonObject object;
  const std::vector<double> values = {0.1, std::nan(""), -0.0};
  object.add("text", "a\"\\\n\x01\xc3\xa9\xff").add("n", std::numeric_limits<i64>::min()).add("x", 1e-300);
  object.add("inf", std::numeric_limits<double>::infinity()).add("list", values).add("yes", true);
  EXPECT_EQ(JsonObject().text(), "{}");
  const Expected<Json> json = parse(object.text());
  ASSERT_TRUE(json.has_value()) << object.text();
  EXPECT_EQ(*json->find("text")->get<std::string>(), "a\"\\\n\x01\xc3\xa9\xef\xbf\xbd");
  EXPECT_EQ(*json->find("n")->get<i64>(), std::numeric_limits<i64>::min());
  EXPECT_EQ(*json->find("x")->get<double>(), 1e-300);
  EXPECT_TRUE(json->find("inf")->is_null());
  EXPECT_TRUE((*json->find("list")->get<Json::Array>())[1].is_null());
  EXPECT_EQ(*(*json->find("list")->get<Json::Array>())[0].get<double>(), 0.1);
}

TEST(Json, ReplacesExactlyTheInvalidBytes) {
  EXPECT_EQ(json_string("\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(json_string("\xe2\x82"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");  // cut short
  EXPECT_EQ(json_string("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");  // overlong
  EXPECT_EQ(json_string("\xf4\x90\x80\x80").size(), 2U + 4U * 3U);     // beyond U+10FFFF
}

}  // namespace
}  // namespace wych::io
