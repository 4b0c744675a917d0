// Normal forms against utf8proc on whole strings, and what is ours: cutting, stray bytes, long runs of marks.
// Against the package `tokenizers`: tokenizer_vectors_test.cc.
#include "data/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "data/cpu_seconds.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd};

std::string normalized(const Normalizer& normalizer, std::string_view text) {
  std::string buffer;
  return std::string(normalizer.apply(text, buffer));
}

std::string expected(NormalForm form, const std::string& text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.c_str());
  utf8proc_uint8_t* result = form == NormalForm::kNfc    ? utf8proc_NFC(bytes)
                             : form == NormalForm::kNfd  ? utf8proc_NFD(bytes)
                             : form == NormalForm::kNfkc ? utf8proc_NFKC(bytes)
                                                         : utf8proc_NFKD(bytes);
  std::string copy(reinterpret_cast<const char*>(result));
  std::free(result);
  return copy;
}

TEST(Normalizer, AgreesWithUtf8procOnRandomText) {
  std::mt19937 random(3);
  const std::vector<std::pair<i32, i32>> ranges = {{0x20, 0x7f},     {0xc0, 0x17f},    {0x300, 0x362},
                                                   {0x1100, 0x11ff}, {0xac00, 0xae00}, {0x900, 0x9ff},
                                                   {0x1e00, 0x1fff}, {0xf900, 0xfb4f}, {0x1d15e, 0x1d1c0}};
  for (const NormalForm form : kForms) {
    const Normalizer normalizer({form});
    for (int round = 0; round < 5000; ++round) {
      std::string text;
      for (std::size_t i = random() % 10; i > 0; --i) {
        const auto& [first, last] = ranges[random() % ranges.size()];
        append_utf8(text, first + static_cast<i32>(random() % static_cast<u32>(last - first)));
      }
      ASSERT_EQ(normalized(normalizer, text), expected(form, text)) << normal_form_name(form) << " " << text;
    }
  }
}

TEST(Normalizer, AgreesWithUtf8procOnEveryCharacterBetweenOthers) {
  const Normalizer normalizer({NormalForm::kNfc});
  for (i32 c = 1; c < 0x30000; ++c) {
    if (c >= 0xd800 && c < 0xe000) {
      continue;
    }
    std::string text = "e";
    append_utf8(text, c);
    text += "\u0323\u0301\u11a8o";
    ASSERT_EQ(normalized(normalizer, text), expected(NormalForm::kNfc, text)) << c;
  }
}

TEST(Normalizer, KeepsStrayBytesAsSeparators) {
  const Normalizer nfc({NormalForm::kNfc});
  EXPECT_EQ(normalized(nfc, "e\u0301\xff\u0301e\u0301\xc3"), "\u00e9\xff\u0301\u00e9\xc3");
  EXPECT_EQ(normalized(nfc, "\xff\u0301"), "\xff\u0301");
  EXPECT_EQ(normalized(nfc, std::string("a\0e\u0301", 5)), std::string("a\0\u00e9", 4));
}

TEST(Normalizer, HandsBackTextThatDoesNotChange) {
  const Normalizer none;
  const std::string text = "e\u0301";
  std::string buffer;
  EXPECT_EQ(none.apply(text, buffer).data(), text.data());
  const Normalizer both({NormalForm::kNfd, NormalForm::kNfkc});
  EXPECT_EQ(normalized(both, "\ufb01\u00e9"), "fi\u00e9");
  EXPECT_EQ(normalized(both, ""), "");
}

// Marks in the worst order: an insertion sort would take 10^10 steps.
TEST(Normalizer, SortsALongRunOfMarks) {
  const Normalizer nfc({NormalForm::kNfc});
  std::string text = "q";
  std::string sorted = "q";
  for (int i = 0; i < 200000; ++i) {
    text += "\u0301\u0316";
    sorted += "\u0316";
  }
  for (int i = 0; i < 200000; ++i) {
    sorted += "\u0301";
  }
  const CpuSeconds spent;
  EXPECT_EQ(normalized(nfc, text), sorted);
  EXPECT_LT(spent(), 30);
}

}  // namespace
}  // namespace wych::data
