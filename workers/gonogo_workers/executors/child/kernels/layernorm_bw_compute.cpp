// Computes dx of LayerNorm backward for one core's row tiles; every step is stored as bf16:
//
//     x^ = (x - mean) rstd      P = dy gamma      s1 = mean(P)      s2 = mean(P x^)      dx = rstd (P - s1 - x^ s2)
//
// The sums run in Dst over the tiles of a row; 1/N is an fp32 factor on the SFPU. Padded columns have gamma = 0, so they add nothing to
// the sums. SUBTRACT_S1_TWICE plants a fault: s1 is subtracted once more from P - s1.
//
// Compile-time: tiles in a row; the bits of 1/N as fp32. Runtime: number of row tiles.

#include <cstdint>

#include "api/compute/bcast.h"
#include "api/compute/compute_kernel_api.h"
#include "api/compute/compute_kernel_hw_startup.h"
#include "api/compute/eltwise_binary.h"
#include "api/compute/eltwise_unary/binop_with_scalar.h"
#include "api/compute/reconfig_data_format.h"
#include "api/compute/reduce.h"

// Run `math`, which leaves a tile in Dst register 0, and pack that tile.
template <typename Math>
ALWI void tile_to(uint32_t out, Math math) {
    cb_reserve_back(out, 1);
    tile_regs_acquire();
    math();
    tile_regs_commit();
    tile_regs_wait();
    pack_tile(0, out);
    tile_regs_release();
    cb_push_back(out, 1);
}

// Take one tile from `in` and subtract the column in `column` from each of its columns.
ALWI void subtract_column(uint32_t in, uint32_t column, uint32_t out) {
    cb_wait_front(in, 1);
    sub_bcast_cols_init(in, column);
    tile_to(out, [=] { sub_tiles_bcast_cols(in, column, 0, 0, 0); });
    cb_pop_front(in, 1);
}

// Multiply each column of a tile of `in` by the column in `column`.
ALWI void multiply_column(uint32_t in, uint32_t tile, uint32_t column, uint32_t out) {
    cb_wait_front(in, tile + 1);
    mul_bcast_cols_init(in, column);
    tile_to(out, [=] { mul_tiles_bcast_cols(in, column, tile, 0, 0); });
}

// Compute the mean over a row of tiles, as a column.
ALWI void row_mean(uint32_t in, uint32_t width, uint32_t reciprocal, uint32_t out) {
    cb_wait_front(in, width);
    reconfig_data_format(BUFFER_ONES, in);
    reduce_init<PoolType::SUM, ReduceDim::REDUCE_ROW>(in, BUFFER_ONES, out);
    tile_to(out, [=] {
        for (uint32_t tile = 0; tile < width; ++tile) {
            reduce_tile<PoolType::SUM, ReduceDim::REDUCE_ROW>(in, BUFFER_ONES, tile, 0, 0);
        }
        binop_with_scalar_tile_init();
        mul_unary_tile(0, reciprocal);
    });
    reduce_uninit();
    reconfig_data_format(in, BUFFER_ONES);
    cb_wait_front(out, 1);
}

void kernel_main() {
    constexpr uint32_t width = get_compile_time_arg_val(0);
    constexpr uint32_t reciprocal = get_compile_time_arg_val(1);
    const uint32_t rows = get_arg_val<uint32_t>(0);

    compute_kernel_hw_startup(BUFFER_X, BUFFER_MEAN, BUFFER_CENTRED);
    cb_wait_front(BUFFER_ONES, 1);
    cb_wait_front(BUFFER_GAMMA, width);

    for (uint32_t row = 0; row < rows; ++row) {
        cb_wait_front(BUFFER_MEAN, 1);
        cb_wait_front(BUFFER_RSTD, 1);

        for (uint32_t tile = 0; tile < width; ++tile) {  // x^
            subtract_column(BUFFER_X, BUFFER_MEAN, BUFFER_CENTRED);
            multiply_column(BUFFER_CENTRED, 0, BUFFER_RSTD, BUFFER_XHAT);
            cb_pop_front(BUFFER_CENTRED, 1);
        }
        for (uint32_t tile = 0; tile < width; ++tile) {  // P
            cb_wait_front(BUFFER_DY, 1);
            mul_bcast_rows_init(BUFFER_DY, BUFFER_GAMMA);
            tile_to(BUFFER_PRODUCT, [=] { mul_tiles_bcast_rows(BUFFER_DY, BUFFER_GAMMA, 0, tile, 0); });
            cb_pop_front(BUFFER_DY, 1);
        }
        cb_wait_front(BUFFER_PRODUCT, width);
        cb_wait_front(BUFFER_XHAT, width);
        for (uint32_t tile = 0; tile < width; ++tile) {  // P x^
            mul_init(BUFFER_PRODUCT, BUFFER_XHAT);
            tile_to(BUFFER_WEIGHTED, [=] { mul_tiles(BUFFER_PRODUCT, BUFFER_XHAT, tile, tile, 0); });
        }
        row_mean(BUFFER_PRODUCT, width, reciprocal, BUFFER_S1);
        row_mean(BUFFER_WEIGHTED, width, reciprocal, BUFFER_S2);
        cb_pop_front(BUFFER_WEIGHTED, width);

        for (uint32_t tile = 0; tile < width; ++tile) {  // rstd ((P - s1) - x^ s2)
            multiply_column(BUFFER_XHAT, tile, BUFFER_S2, BUFFER_ALONG);
            subtract_column(BUFFER_PRODUCT, BUFFER_S1, BUFFER_LEFT);
#ifdef SUBTRACT_S1_TWICE
            subtract_column(BUFFER_LEFT, BUFFER_S1, BUFFER_LEFT);
#endif
            cb_wait_front(BUFFER_LEFT, 1);
            cb_wait_front(BUFFER_ALONG, 1);
            sub_init(BUFFER_LEFT, BUFFER_ALONG);
            tile_to(BUFFER_DIFFERENCE, [=] { sub_tiles(BUFFER_LEFT, BUFFER_ALONG, 0, 0, 0); });
            cb_pop_front(BUFFER_LEFT, 1);
            cb_pop_front(BUFFER_ALONG, 1);
            multiply_column(BUFFER_DIFFERENCE, 0, BUFFER_RSTD, BUFFER_DX);
            cb_pop_front(BUFFER_DIFFERENCE, 1);
        }
        cb_pop_front(BUFFER_XHAT, width);
        cb_pop_front(BUFFER_S1, 1);
        cb_pop_front(BUFFER_S2, 1);
        cb_pop_front(BUFFER_MEAN, 1);
        cb_pop_front(BUFFER_RSTD, 1);
    }
    cb_pop_front(BUFFER_GAMMA, width);
    cb_pop_front(BUFFER_ONES, 1);
}
