// Reading the domains: a command, two compressed files and a folder. The texts are kept as they are but for
// page furniture (indentation, tables of contents), so that lines and verse stay what they look like.
#include "data/corpus.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "data/byte_stream.h"

namespace wych::data {
namespace {

Error missing_package(std::string_view domain, std::string_view package, std::string what) {
  return Error{ErrorKind::kData,
               fmt::format("text domain \"{}\" (package {})", domain, package),
               std::move(what),
               fmt::format("install it with `apt-get install {}`, or leave the domain out", package),
               {}};
}

// Standard output of a shell command; the exit status must be 0.
Expected<std::string> command_output(const std::string& command, const Error& error) {
  struct Close {
    void operator()(FILE* pipe) const { pclose(pipe); }
  };
  std::unique_ptr<FILE, Close> pipe(popen((command + " 2>/dev/null").c_str(), "r"));
  if (!pipe) {
    return error;
  }
  std::string text;
  std::array<char, std::size_t{1} << 16U> buffer;
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;) {
    text.append(buffer.data(), got);
  }
  const int status = pclose(pipe.release());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return error;
  }
  return text;
}

// A file of a package, unpacked; if that fails, `error` says which package is missing.
Expected<std::string> read_packed(const std::string& path, const Error& error) {
  Expected<std::string> text = read_unpacked(path);
  return text ? std::move(text) : Expected<std::string>(error);
}

Expected<Domain> load_bible(const CorpusPlaces& places) {
  constexpr std::size_t kChapters = 1189;
  const std::string command = places.bible_command + " -l 1000 gen1:1-rev22:21";
  WYCH_TRY(const std::string text,
           command_output(command, missing_package("bible", "bible-kjv",
                                                   fmt::format("`{}` failed or does not exist", command))));
  Domain domain{"bible", "King James Bible (package bible-kjv): copyright expired", split_bible(text)};
  if (domain.documents.size() != kChapters) {
    return missing_package("bible", "bible-kjv",
                           fmt::format("`{}` printed {} chapters; the King James Bible has {}", command,
                                       domain.documents.size(), kChapters));
  }
  return domain;
}

Expected<Domain> load_jargon(const CorpusPlaces& places) {
  Error error = missing_package("jargon", "jargon-text", fmt::format("cannot read {}", places.jargon_file));
  if (std::filesystem::exists(std::filesystem::path(places.jargon_file).parent_path())) {
    error.what += ": the package is there, but its documentation was left out at installation";
    error.hint =
        "get it with `apt-get install --reinstall -o "
        "Dpkg::Options::=--path-include=/usr/share/doc/jargon-text/* jargon-text`, or leave the domain out";
  }
  WYCH_TRY(const std::string text, read_packed(places.jargon_file, error));
  Domain domain{"jargon", "The Jargon File (package jargon-text): public domain", split_jargon(text)};
  if (domain.documents.empty()) {
    return missing_package("jargon", "jargon-text", fmt::format("no entries in {}", places.jargon_file));
  }
  return domain;
}

Expected<Domain> load_devil(const CorpusPlaces& places) {
  const Error error =
      missing_package("devil", "dict-devil", fmt::format("cannot read {}", places.devil_text));
  WYCH_TRY(const std::string text, read_packed(places.devil_text, error));
  WYCH_TRY(const std::string index, read_file(places.devil_index, ErrorKind::kData));
  Domain domain{"devil", "Ambrose Bierce, The Devil's Dictionary (package dict-devil): copyright expired",
                split_dictionary(text, index)};
  if (domain.documents.empty()) {
    return missing_package("devil", "dict-devil",
                           fmt::format("{} is no index of {}", places.devil_index, places.devil_text));
  }
  return domain;
}

// What the project's authors wrote: no results of builds or runs, no recorded tensors.
bool is_source(const std::filesystem::path& path) {
  static constexpr std::array<std::string_view, 7> kExtensions = {".cc", ".h",  ".cu",  ".cuh",
                                                                  ".py", ".md", ".toml"};
  return path.filename() == "CMakeLists.txt" ||
         std::find(kExtensions.begin(), kExtensions.end(), path.extension()) != kExtensions.end();
}

// Whether a folder is the root of this project: anyone's files are not to be learned from by mistake.
bool is_project(const std::filesystem::path& root) {
  const Expected<std::string> build = read_file((root / "CMakeLists.txt").string(), ErrorKind::kData);
  return build && build->find("project(wych") != std::string::npos;
}

Expected<Domain> load_sources(const CorpusPlaces& places) {
  namespace fs = std::filesystem;
  static constexpr std::array<std::string_view, 4> kSkipped = {"build", "data", "runs", "tests/golden"};
  const fs::path root(places.project_root);
  const auto error = [&](std::string what) {
    return Error{ErrorKind::kData,
                 fmt::format("text domain \"sources\" ({})", root.string()),
                 std::move(what),
                 "run from the project's folder, or leave the domain out: --domains bible,jargon,devil",
                 {}};
  };
  if (!is_project(root)) {
    return error("is not wych's own folder: no CMakeLists.txt with project(wych");
  }
  std::vector<std::string> files;  // relative to the root
  std::error_code failure;
  for (fs::recursive_directory_iterator it(root, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string relative = it->path().lexically_relative(root).generic_string();
    if (it->is_directory(failure)) {
      if (it->path().filename().native().starts_with('.') ||
          std::find(kSkipped.begin(), kSkipped.end(), relative) != kSkipped.end()) {
        it.disable_recursion_pending();
      }
    } else if (!it->is_symlink(failure) && is_source(it->path())) {
      files.push_back(relative);
    }
  }
  if (failure) {
    return error(failure.message());
  }
  std::sort(files.begin(), files.end());
  Domain domain{"sources", "wych's own sources, under the project's licence", {}};
  for (const std::string& file : files) {
    WYCH_TRY(std::string text, read_file((root / file).string(), ErrorKind::kData));
    if (!text.empty()) {
      domain.documents.push_back(std::move(text));
    }
  }
  return domain;
}

}  // namespace

std::string_view known_domains() { return "bible, jargon, devil, sources"; }

Expected<Domain> load_domain(std::string_view name, const CorpusPlaces& places) {
  if (name == "bible") {
    return load_bible(places);
  }
  if (name == "jargon") {
    return load_jargon(places);
  }
  if (name == "devil") {
    return load_devil(places);
  }
  if (name == "sources") {
    return load_sources(places);
  }
  return Error{ErrorKind::kUsage,
               fmt::format("text domain \"{}\"", name),
               "is not known",
               fmt::format("choose from {}", known_domains()),
               {}};
}

}  // namespace wych::data
