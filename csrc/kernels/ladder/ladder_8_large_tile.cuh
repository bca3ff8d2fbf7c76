// TODO header
#pragma once

#include "kernels/ladder/ladder_7_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig>
using Ladder8LargeTile = Ladder7Softmax<kConfig>;

using Ladder8LargeTileConfig = LadderConfig;

}  // namespace ffpa
