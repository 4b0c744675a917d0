// What host code must know of a CUDA device to choose tiles and workspaces: a table, never a query, so that a
// laptop plans for a cluster.
#pragma once

namespace wych {

struct CudaTarget {
  int architecture = 90;  // 10 * major + minor of the compute capability
  int num_sms = 132;
};

}  // namespace wych
