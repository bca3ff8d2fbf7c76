// TODO header
#pragma once

#include "kernels/ladder/ladder_8_large_tile.cuh"

namespace ffpa {

template <LadderConfig kConfig>
using Ladder9WideWarps = Ladder8LargeTile<kConfig>;

using Ladder9WideWarpsConfig = LadderConfig;

}  // namespace ffpa
