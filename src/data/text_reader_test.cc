// Plain text and JSON lines, packed and not; where text is cut; what is refused, and with which position.
#include "data/text_reader.h"

#include <gtest/gtest.h>

#include <zlib.h>
#include <zstd.h>

#include "data/byte_stream.h"
#include "data/test_folder.h"

namespace wych::data {
namespace {

std::string gzip(std::string_view text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// A text of many lines, some of them with characters of several bytes.
std::string lines(std::size_t bytes) {
  std::string text;
  for (i64 i = 0; text.size() < bytes; ++i) {
    text +=
        i % 7 == 0 ? "Übung macht den Meister, sagt man.\n\n" : "line " + std::to_string(i * i) + " of it\n";
  }
  return text;
}

TextBatch read_all(const std::vector<std::string>& paths, const TextOptions& options = {},
                   i64 batch_bytes = i64{1} << 30U) {
  TextReader reader = TextReader::open(paths, options).value();
  TextBatch all;
  while (!all.at_end) {
    TextBatch batch = reader.next(batch_bytes).value();
    std::move(batch.pieces.begin(), batch.pieces.end(), std::back_inserter(all.pieces));
    all.invalid += batch.invalid;
    all.empty += batch.empty;
    all.bytes_read = batch.bytes_read;
    all.at_end = batch.at_end;
  }
  EXPECT_EQ(all.bytes_read, reader.total_bytes());
  return all;
}

std::string joined(const TextBatch& batch) {
  std::string text;
  for (const TextPiece& piece : batch.pieces) {
    text += piece.text;
  }
  return text;
}

std::string error_of(const std::string& path, const TextOptions& options = {}) {
  TextReader reader = TextReader::open({path}, options).value();
  const auto batch = reader.next(i64{1} << 30U);
  return batch ? "no error" : batch.error().text();
}

TEST(ByteStream, UnpacksSeveralMembersAndFrames) {
  const TestFolder folder;
  const std::string text = lines(700000);
  EXPECT_EQ(read_unpacked(folder.write("a", text)).value(), text);
  EXPECT_EQ(read_unpacked(folder.write("b", gzip(text) + gzip("more") + gzip(""))).value(), text + "more");
  EXPECT_EQ(read_unpacked(folder.write("c", zstd(text) + zstd("more"))).value(), text + "more");
  EXPECT_EQ(read_unpacked(folder.write("d", "")).value(), "");
}

TEST(ByteStream, SaysWhatIsCutOrDamaged) {
  const TestFolder folder;
  const std::string text = lines(700000);
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    for (const std::size_t length : {std::size_t{12}, packed.size() / 2, packed.size() - 1}) {
      const auto cut = read_unpacked(folder.write("cut", packed.substr(0, length)));
      ASSERT_FALSE(cut.has_value()) << length;
      EXPECT_NE(cut.error().text().find("cut: is damaged or cut short near byte"), std::string::npos)
          << cut.error().text();
    }
    std::string damaged = packed;
    damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
    damaged[packed.size() / 2 + 1] = static_cast<char>(damaged[packed.size() / 2 + 1] ^ 0x55);
    const auto result = read_unpacked(folder.write("damaged", damaged));
    EXPECT_TRUE(!result.has_value() || *result != text);
  }
  EXPECT_FALSE(read_unpacked(folder.write("tail", gzip(text) + "not gzip")).has_value());
}

TEST(TextReader, GivesAPlainFileAsOneDocumentInPieces) {
  const TestFolder folder;
  const std::string text = lines(2500000);
  for (const std::string& content : {text, gzip(text), zstd(text)}) {
    const std::string path = folder.write("a.txt", content);
    const TextBatch all = read_all({path}, {}, 100000);
    EXPECT_EQ(joined(all), text);
    ASSERT_GT(all.pieces.size(), 2U);
    for (std::size_t i = 0; i < all.pieces.size(); ++i) {
      EXPECT_EQ(all.pieces[i].begins_unit, i == 0);
      EXPECT_EQ(all.pieces[i].ends_document, i + 1 == all.pieces.size());
      EXPECT_LE(all.pieces[i].text.size(), std::size_t{1} << 20U);
    }
  }
}

TEST(TextReader, CutsTheSameWhateverTheBatch) {
  const TestFolder folder;
  const std::string path = folder.write("a.txt", lines(3000000));
  const TextOptions options{.section_bytes = 10000};
  const TextBatch one = read_all({path}, options);
  const TextBatch many = read_all({path}, options, 1);
  ASSERT_EQ(one.pieces.size(), many.pieces.size());
  EXPECT_GT(one.pieces.size(), 150U);
  for (std::size_t i = 0; i < one.pieces.size(); ++i) {
    EXPECT_EQ(one.pieces[i].text, many.pieces[i].text);
    EXPECT_TRUE(one.pieces[i].begins_unit);
  }
}

TEST(TextReader, CutsBetweenWordsWhereNoLineEndsWell) {
  EXPECT_EQ(find_cut("abc\n  def ghi  jkl"), 9U);
  EXPECT_EQ(find_cut("a longer word \u00fcber 5 "), 13U);  // no digits: some patterns join them in threes
  EXPECT_EQ(find_cut("abc, def"), 0U);
  EXPECT_EQ(find_cut("ab cd ef"), 5U);
  EXPECT_EQ(find_cut("ab cd\nef gh"), 6U);
  EXPECT_EQ(find_cut("ab cd\nef gh", false), 8U);
  EXPECT_EQ(find_cut("a bcdefgh"), 0U);
}

TEST(TextReader, CutsBehindALineAndBeforeAWord) {
  EXPECT_EQ(find_cut("abc\ndef"), 4U);
  EXPECT_EQ(find_cut("abc\n\ndef"), 0U);  // a run of spaces depends on what follows it
  EXPECT_EQ(find_cut("abc \ndef"), 0U);
  EXPECT_EQ(find_cut("abc\n def"), 0U);
  EXPECT_EQ(find_cut("abc\n/def"), 0U);  // some patterns take it with the line's end
  EXPECT_EQ(find_cut("abc\n"), 0U);
  EXPECT_EQ(find_cut("ab\u3000\nd"), 0U);  // a wide space
  EXPECT_EQ(find_cut("ab.\n\u00e9t"), 4U);
  EXPECT_EQ(find_cut("\u3042\u3002\n\u3042"), 7U);
  EXPECT_EQ(find_cut("a\nbcdefghi"), 0U);  // in the second half only
}

TEST(TextReader, TakesTextWithoutLinesToo) {
  const TestFolder folder;
  std::string text;
  while (text.size() < 20000000) {
    text += "\u00e4\u3042x";
  }
  const TextBatch all = read_all({folder.write("a.txt", text)});
  EXPECT_EQ(joined(all), text);
  EXPECT_GT(all.pieces.size(), 1U);
  for (const TextPiece& piece : all.pieces) {
    EXPECT_EQ(find_invalid_utf8(piece.text), std::string::npos);
  }
}

TEST(TextReader, GivesADocumentALineOfJson) {
  const TestFolder folder;
  const std::string text = R"({"id": 1, "text": "a\n\"b\" \u00e4", "source": {"text": "no"}})"
                           "\n\n"
                           R"({"text": ""})"
                           "\r\n"
                           R"({"x": [1, 2], "text": "last"})";
  for (const auto& [name, content] : {std::pair{"a.jsonl", text}, std::pair{"a.jsonl.gz", gzip(text)},
                                      std::pair{"a.json.zst", zstd(text)}}) {
    const TextBatch all = read_all({folder.write(name, content)});
    ASSERT_EQ(all.pieces.size(), 2U) << name;
    EXPECT_EQ(all.pieces[0].text, "a\n\"b\" \u00e4");
    EXPECT_TRUE(all.pieces[0].ends_document);
    EXPECT_EQ(all.pieces[1].text, "last");
    EXPECT_EQ(all.empty, 1);
  }
  const TextBatch plain = read_all({folder.path("a.jsonl")}, {.format = TextFormat::kPlain});
  EXPECT_EQ(joined(plain), text);
  const std::string other = folder.write("b.txt", "{\"content\": \"c\"}\n");
  EXPECT_EQ(joined(read_all({other}, {.format = TextFormat::kJsonLines, .text_key = "content"})), "c");
}

TEST(TextReader, ReadsJsonLinesLongerThanABlock) {
  const TestFolder folder;
  const std::string big(5000000, 'x');
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += "{\"text\": \"" + big + "\"}\n{\"text\": \"small\"}\n";
  }
  const TextBatch all = read_all({folder.write("a.jsonl", text)});
  ASSERT_EQ(all.pieces.size(), 6U);
  EXPECT_EQ(all.pieces[4].text, big);
  EXPECT_EQ(all.pieces[5].text, "small");
}

TEST(TextReader, NamesTheLineOfBadJson) {
  const TestFolder folder;
  const auto error = [&](const std::string& line) {
    return error_of(folder.write("a.jsonl", "{\"text\": \"good\"}\n" + line + "\n{\"text\": \"good\"}\n"));
  };
  EXPECT_NE(error("{\"text\": ").find("a.jsonl:2: is no JSON object"), std::string::npos);
  EXPECT_NE(error("[1, 2]").find("a.jsonl:2: is no JSON object"), std::string::npos);
  EXPECT_NE(error("{\"text\": \"cut\", \"id\": 1").find("a.jsonl:2: is no JSON object"), std::string::npos);
  // Damage behind the text, and a second object on a line, would be text lost without a word.
  EXPECT_NE(error("{\"text\": \"a\"}{\"text\": \"b\"}").find("a.jsonl:2: is no JSON object"),
            std::string::npos);
  EXPECT_NE(error("{\"text\": \"a\", \"x\": garbage]]}").find("a.jsonl:2: is no JSON object"),
            std::string::npos);
  EXPECT_NE(error("{\"text\": \"a\", \"m\": {\"b\": 1}").find("a.jsonl:2: is no JSON object"),
            std::string::npos);
  EXPECT_NE(error("{\"text\": \"a\\ud800b\"}").find("a.jsonl:2: is no JSON object"), std::string::npos);
  EXPECT_NE(error("{\"txt\": \"a\"}").find("a.jsonl:2: has no string \"text\""), std::string::npos);
  EXPECT_NE(error("{\"text\": 5}").find("--text-key"), std::string::npos);
}

TEST(TextReader, NamesTheByteThatIsNotUtf8) {
  const TestFolder folder;
  const std::string good = lines(3000000);
  const std::string bad = good.substr(0, 2000000) + "\xff" + good.substr(2000000);
  EXPECT_NE(error_of(folder.write("a.txt", bad)).find("a.txt: is not UTF-8: byte 2000000 of"),
            std::string::npos)
      << error_of(folder.path("a.txt"));
  const TextBatch kept = read_all({folder.path("a.txt")}, {.keep_invalid = true});
  EXPECT_EQ(kept.invalid, 1);
  EXPECT_EQ(joined(kept), bad);
  const std::string json =
      folder.write("a.jsonl", "{\"text\": \"good\"}\n{\"text\": \"b\xc3\"}\n{\"text\": \"c\"}\n");
  EXPECT_NE(error_of(json).find("byte 28 of"), std::string::npos) << error_of(json);
  const TextBatch skipped = read_all({json}, {.keep_invalid = true});
  EXPECT_EQ(skipped.invalid, 1);
  EXPECT_EQ(joined(skipped), "goodc");
}

TEST(TextReader, LeavesOutAByteOrderMarkAndEmptyFiles) {
  const TestFolder folder;
  const TextBatch all = read_all({folder.write("a.txt", ""), folder.write("b.txt", "\xef\xbb\xbfword"),
                                  folder.write("c.txt", gzip(""))});
  ASSERT_EQ(all.pieces.size(), 1U);
  EXPECT_EQ(all.pieces[0].text, "word");
  EXPECT_FALSE(TextReader::open({folder.path("none")}, {}).has_value());
}

}  // namespace
}  // namespace wych::data
