// Unicode normal forms over any bytes: what is not well-formed UTF-8 stays as it is and separates what is
// around it, as U+FFFD would. Time O(n log n) whatever the order of combining marks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace wych::data {

enum class NormalForm : u8 { kNfc, kNfd, kNfkc, kNfkd };

// "NFC", ...
std::string_view normal_form_name(NormalForm form);

class Normalizer {
 public:
  // Changes nothing.
  Normalizer() = default;
  // Applies `forms` one after the other.
  explicit Normalizer(const std::vector<NormalForm>& forms);

  [[nodiscard]] const std::vector<NormalForm>& forms() const { return forms_; }
  // The normalised text: `text` itself if nothing changes, else a view of `buffer`.
  [[nodiscard]] std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  // Bit c: no character before c can affect it, and alone it stays as it is. Between two such characters the
  // text can be cut and normalised by parts; most text consists of nothing else.
  using InertSet = std::vector<bool>;
  static InertSet find_inert(NormalForm form);
  static void apply_form(NormalForm form, const InertSet& inert, std::string_view text, std::string& out);

  std::vector<NormalForm> forms_;
  std::vector<InertSet> inert_;  // one a form
};

}  // namespace wych::data
