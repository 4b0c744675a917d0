// Engine state to and from checkpoints: every persistent tensor by path, and the position in the data.
#pragma once

#include <functional>
#include <string>

#include "base/expected.h"
#include "data/sampler.h"
#include "io/checkpoint.h"
#include "io/huggingface.h"
#include "train/engine.h"

namespace wych::train {

// How far a run is.
struct RunProgress {
  i64 step = 0;    // steps done
  i64 tokens = 0;  // tokens consumed
  data::DataPosition position;
  u64 data_fingerprint = 0;  // data::Dataset::fingerprint of the training files
};

// Saves to config.run.dir and makes it the latest; keeps config.checkpoint.keep. Returns the folder.
Expected<std::string> save_run(Engine& engine, const config::Config& config, const RunProgress& progress);

// Reads weights, optimizer and data position of a checkpoint folder into an engine of the same model. Every
// tensor of the engine must be there and every tensor of the checkpoint must be known, else kCheckpoint.
Expected<RunProgress> load_run(Engine& engine, const std::string& checkpoint_dir);

// Runs `load`, which asks for the memory of one tensor after another and fills it, and moves each to the
// engine when it asks for the next. Its error is returned.
Expected<void> receive_weights(Engine& engine,
                               const std::function<Expected<void>(const io::FindDestination&)>& load);

// Reads the weights alone, for evaluation and generation.
Expected<void> load_weights(Engine& engine, const std::string& checkpoint_dir);

}  // namespace wych::train
