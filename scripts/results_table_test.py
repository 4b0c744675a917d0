#!/usr/bin/env python3
"""scripts/results_table.py on a tiny repository: what it writes, and every fault that its check must find."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "results_table.py"
NAME = "bench/results/2026-01-02-moe-step-h200.json"
BASE = {"what": "w", "command": "c", "commit": "0123abc", "data": "random", "conditions": "medians of 10",
        "gpu": "G", "driver": "1", "cuda": "13.0", "torch": "2", "cudnn": 9, "nccl": "2", "transformers": "5"}
EMPTY_PAGE = f"# P\n\n<!-- results: {NAME} -->\n<!-- end of results -->\n\nafter\n"


def moe_step():
    rate = {"tokens_per_second": 50000.0, "tflops": 200.0}
    return {**BASE, "kind": "moe-step", "results": [
        {"case": "ladder-8", "batch_tokens": 16384, "wych": {"tokens_per_second": 75000.0, "tflops": 300.0,
                                                             "planned_gib": 40.2},
         "peers": [{"model": "plain", "eager": rate, "compiled": {"tokens_per_second": 60000.0, "tflops": 240.0,
                                                                  "peak_reserved_gib": 61.7},
                    "ratio": {"eager": 1.5, "compiled": 1.25}}]},
        {"case": "ladder-128-x8", "batch_tokens": 65536,
         "peers": [{"model": "plain", "eager_out_of_memory": "no", "error": "no", "out_of_memory": True}]}],
        "ladder_lost": [{"experts": [8, 128], "tokens": 16384, "wych": 0.031}]}


def train_step():
    return {**BASE, "kind": "train-step", "wych": {"tokens_per_second": 45000.0, "tflops": 355.0, "planned_gib": 130.0,
                                                   "microbatch_sequences": 2, "recompute": "none"},
            "results": [{"state": "bfloat16", "mode": "eager", "tokens_per_second": 30000.0, "tflops": 236.0,
                         "microbatch_sequences": 4, "peak_reserved_gib": 120.0, "ratio": 1.5},
                        {"state": "float32", "mode": "eager", "error": "no", "out_of_memory": True}]}


class ResultsTable(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        for folder in ("docs", "bench/results"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "README.md").write_text("# R\n")
        self.page = self.root / "docs" / "performance.md"
        self.page.write_text(EMPTY_PAGE)
        self.write(moe_step())

    def write(self, record, name=NAME):
        (self.root / name).write_text(json.dumps(record))

    def run_script(self, *arguments):
        """(exit status, output)."""
        run = subprocess.run([sys.executable, SCRIPT, "--root", self.root, *arguments], capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout

    def refuses(self, words):
        status, output = self.run_script("--check")
        self.assertEqual(status, 1, output)
        self.assertIn(words, output)

    def test_writes_the_tables_and_nothing_else(self):
        self.assertEqual(self.run_script()[0], 0)
        text = self.page.read_text()
        self.assertIn("| ladder-8 | 16,384 | plain | 50,000 (200) | 60,000 (240) | 75,000 (300) | 1.50x | 1.25x | "
                      "62 / 40 |\n", text)
        self.assertIn("| ladder-128-x8 | 65,536 | plain | out of memory | out of memory | failed | - | - | - / - |\n",
                      text)
        self.assertIn("Lost from 8 to 128 experts at 16,384 tokens: wych 3.1 %.\n", text)
        self.assertTrue(text.startswith("# P\n\n<!-- results:") and text.endswith("results -->\n\nafter\n"))
        self.assertEqual(self.run_script("--check")[0], 0)

    def test_writes_whole_steps(self):
        self.write(train_step())
        self.assertEqual(self.run_script()[0], 0)
        text = self.page.read_text()
        self.assertIn("| transformers eager, optimizer in bfloat16 | 4 | 30,000 | 236 | 120 | 1.50x |\n", text)
        self.assertIn("| transformers eager, optimizer in float32 | - | out of memory | - | - | - |\n", text)
        self.assertIn("| wych, recompute none | 2 | 45,000 | 355 | 130 |  |\n", text)

    def test_check_writes_nothing(self):
        self.refuses("docs/performance.md: a table differs")
        self.assertEqual(self.page.read_text(), EMPTY_PAGE)

    def test_a_figure_changed_in_the_page_is_found(self):
        self.run_script()
        self.page.write_text(self.page.read_text().replace("75,000", "76,000"))
        self.refuses("docs/performance.md: a table differs")

    def test_a_figure_changed_in_the_record_is_found(self):
        self.run_script()
        record = moe_step()
        record["results"][0]["peers"][0]["compiled"]["tflops"] = 250.0
        self.write(record)
        self.refuses("docs/performance.md: a table differs")

    def test_a_ratio_that_is_not_that_of_its_rates_is_found(self):
        self.run_script()
        record = moe_step()
        record["results"][0]["peers"][0]["ratio"]["compiled"] = 1.26
        self.write(record)
        self.refuses("results[0].compiled: ratio 1.26, and the rates give 1.25")

    def test_every_field_is_needed(self):
        for field in (*BASE, "kind"):
            with self.subTest(field):
                record = moe_step()
                del record[field]
                self.write(record)
                self.refuses(field)

    def test_a_commit_is_hexadecimal(self):
        self.write(moe_step() | {"commit": "COMMIT"})
        self.refuses("commit 'COMMIT', expected 7 to 40 hexadecimal digits")

    def test_an_unknown_kind_is_named(self):
        self.write(moe_step() | {"kind": "mo-step"})
        self.refuses("kind 'mo-step', expected one of cpu-step, grouped")

    def test_numbers_are_finite(self):
        record = moe_step()
        record["results"][0]["wych"]["tflops"] = float("nan")
        self.write(record)
        self.refuses("results.0.wych.tflops: not finite")

    def test_a_record_that_is_no_json_is_named(self):
        (self.root / NAME).write_text("{")
        self.refuses(f"{NAME}: no JSON")

    def test_a_record_on_no_page_is_found(self):
        self.page.write_text("# P\n")
        self.refuses(f"{NAME}: no page shows it")

    def test_a_table_of_no_record_is_found(self):
        self.page.write_text(EMPTY_PAGE.replace("2026-01-02", "2026-01-03"))
        self.refuses("2026-01-03-moe-step-h200.json is not a good record")

    def test_a_table_without_an_end_is_found(self):
        self.page.write_text(EMPTY_PAGE.replace("<!-- end of results -->", ""))
        self.refuses("docs/performance.md: a table is not between")


if __name__ == "__main__":
    unittest.main()
