// Text to learn from that a Debian system has at hand: three public-domain books that come as packages and
// the project's own sources. Each is a domain: a list of documents (a chapter, an entry, a file).
// Deterministic: the same packages give the same documents in the same order. Nothing is downloaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

struct Domain {
  std::string name;
  std::string licence;                 // a sentence for people
  std::vector<std::string> documents;  // UTF-8, not empty
};

// Where the texts lie; the defaults are Debian's places.
struct CorpusPlaces {
  std::string bible_command = "bible";
  std::string jargon_file = "/usr/share/doc/jargon-text/jargon.txt.gz";
  std::string devil_text = "/usr/share/dictd/devil.dict.dz";
  std::string devil_index = "/usr/share/dictd/devil.index";
  std::string project_root = ".";
};

// The names load_domain knows, for messages: "bible, jargon, devil, sources".
std::string_view known_domains();

// Reads one domain. Errors (kData) name the missing package and how to install it.
Expected<Domain> load_domain(std::string_view name, const CorpusPlaces& places);

// The parsers, apart from where the text comes from.

// Output of `bible -l 1000 gen1:1-rev22:21`: headings "Genesis 1" and indented verses. A document a chapter.
std::vector<std::string> split_bible(std::string_view text);
// The Jargon File's text: a document an entry, chapter or section; tables of contents are left out.
std::vector<std::string> split_jargon(std::string_view text);
// A dictd database: each line of `index` is "headword TAB offset TAB length" in base-64 digits. A document an
// entry. Nothing if the index is damaged or points outside the text.
std::vector<std::string> split_dictionary(std::string_view text, std::string_view index);

}  // namespace wych::data
