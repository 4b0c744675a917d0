// The parsers on small texts, the errors, and the real packages where they are installed.
#include "data/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/test_folder.h"

namespace wych::data {
namespace {

using Documents = std::vector<std::string>;

TEST(Corpus, MakesAChapterADocument) {
  EXPECT_EQ(split_bible("\nGenesis 1\n\n  1 In the beginning\n  2 And\n\nExodus 1\n\n  1 Now\n"),
            (Documents{"Genesis 1\n\n1 In the beginning\n2 And\n", "Exodus 1\n\n1 Now\n"}));
  EXPECT_TRUE(split_bible("").empty());
}

TEST(Corpus, MakesAnEntryOfTheJargonFileADocument) {
  const char* text =
      "                  The Jargon File\n\n(version 4.4.7)\n\n   Table of Contents\n\n   Welcome\n\n"
      "Chapter 1. Hacker Slang\n\n   Table of Contents\n\n   Verb Doubling\n\n   This document is a\n"
      "   collection.\n\nVerb Doubling\n\n   A standard:\n\n     indented\n\n"
      "                          Part II. The Jargon Lexicon\n\n   The saga.\n\nGlossary\n\n   foo\n\n"
      "  F\n\n   foo\n\n   fool\n\n   :foo: /foo/\n\n   1. interj. Term.\n\n   :fool: n.\n\n   As used by\n"
      "   hackers: see.\n\n  G\n\n   gabriel\n\n   :gabriel: /gay/\n\n   Tactic.\n";
  EXPECT_EQ(split_jargon(text),
            (Documents{"Chapter 1. Hacker Slang\n\nThis document is a\ncollection.\n",
                       "Verb Doubling\n\nA standard:\n\n  indented\n", ":foo: /foo/\n\n1. interj. Term.\n",
                       ":fool: n.\n\nAs used by\nhackers: see.\n", ":gabriel: /gay/\n\nTactic.\n"}));
}

TEST(Corpus, CutsADictionaryByItsIndex) {
  const std::string text = "header\nABLE, adj. Can.\n\nZEAL, n. Heat.\n";
  const std::string index = "00database\tA\tH\nzeal\tY\tP\nable\tH\tR\nableness\tH\tR\n";
  EXPECT_EQ(split_dictionary(text, index), (Documents{"ABLE, adj. Can.\n", "ZEAL, n. Heat.\n"}));
  EXPECT_TRUE(split_dictionary(text, "zeal\tY\tQ\n").empty());  // one byte too many
  EXPECT_TRUE(split_dictionary(text, "zeal\tY\n").empty());     // no length
  EXPECT_TRUE(split_dictionary(text, "zeal\t?\tA\n").empty());  // no digit
  EXPECT_TRUE(split_dictionary(text, "zeal\t////////////\t/\n").empty());
}

TEST(Corpus, NamesThePackageThatIsMissing) {
  CorpusPlaces places;
  places.bible_command = "/nonexistent/bible";
  places.jargon_file = "/nonexistent/jargon/jargon.txt.gz";
  places.devil_text = "/nonexistent/devil.dict.dz";
  const std::pair<const char*, const char*> expected[] = {{"bible", "apt-get install bible-kjv"},
                                                          {"jargon", "apt-get install jargon-text"},
                                                          {"devil", "apt-get install dict-devil"}};
  for (const auto& [domain, hint] : expected) {
    const auto result = load_domain(domain, places);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().kind, ErrorKind::kData);
    EXPECT_NE(result.error().text().find(hint), std::string::npos) << result.error().text();
  }
  const auto unknown = load_domain("koran", places);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().kind, ErrorKind::kUsage);
  EXPECT_NE(unknown.error().text().find("bible, jargon, devil, sources"), std::string::npos);
}

TEST(Corpus, SaysThatDocumentationWasLeftOut) {
  const TestFolder folder;
  CorpusPlaces places;
  places.jargon_file = folder.path("jargon.txt.gz");  // the folder is there, the file is not
  const auto result = load_domain("jargon", places);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().hint.find("--path-include"), std::string::npos) << result.error().text();
}

TEST(Corpus, RefusesABibleOfAnotherLength) {
  CorpusPlaces places;
  places.bible_command = "echo Genesis 1; :";
  const auto result = load_domain("bible", places);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().text().find("printed 1 chapters"), std::string::npos) << result.error().text();
}

TEST(Corpus, TakesSourcesAndNoResults) {
  const TestFolder folder;
  for (const char* name : {"src/data/b.cc", "src/data/a.h", "CMakeLists.txt", "README.md", "build/x/c.cc",
                           "data/d.md", "runs/e.toml", "tests/golden/README.md", ".git/f.py", "src/g.bin"}) {
    (void)folder.write(name, std::string(name) + "\n");
  }
  (void)folder.write("empty.py", "");
  (void)folder.write("CMakeLists.txt", "project(wych)\n");
  CorpusPlaces places;
  places.project_root = folder.path("");
  const Domain domain = load_domain("sources", places).value();
  EXPECT_EQ(domain.documents,
            (Documents{"project(wych)\n", "README.md\n", "src/data/a.h\n", "src/data/b.cc\n"}));
}

TEST(Corpus, TakesNoSourcesOfAnotherProject) {
  const TestFolder folder;
  (void)folder.write("other/CMakeLists.txt", "project(other)\n");
  CorpusPlaces places;
  for (const char* root : {"none", "other"}) {
    places.project_root = folder.path(root);
    const auto refused = load_domain("sources", places);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().kind, ErrorKind::kData);
    EXPECT_NE(refused.error().text().find("--domains"), std::string::npos) << refused.error().text();
  }
}

TEST(Corpus, ReadsTheInstalledPackages) {
  const CorpusPlaces places;
  if (!std::filesystem::exists("/usr/bin/bible") || !std::filesystem::exists(places.jargon_file) ||
      !std::filesystem::exists(places.devil_text)) {
    GTEST_SKIP() << "bible-kjv, jargon-text and dict-devil are not all installed";
  }
  const Domain bible = load_domain("bible", places).value();
  EXPECT_TRUE(bible.documents.front().starts_with("Genesis 1\n\n1 In the beginning God created"));
  EXPECT_TRUE(bible.documents.back().ends_with("Jesus Christ be with you all. Amen.\n"));
  const Domain jargon = load_domain("jargon", places).value();
  EXPECT_GT(jargon.documents.size(), 2300U);
  EXPECT_TRUE(jargon.documents.front().starts_with("Chapter\u00a01.\u00a0Hacker Slang"));
  const Domain devil = load_domain("devil", places).value();
  EXPECT_GT(devil.documents.size(), 990U);
  EXPECT_TRUE(devil.documents.front().starts_with("ABASEMENT, n.  A decent"));
}

}  // namespace
}  // namespace wych::data
