// Reads the inputs of layernorm_bw's compute kernel, row tile by row tile: mean and rstd (a column each), then x, then dy.
// gamma and the tile of ones are read once and stay.
//
// Compile-time: tiles in a row, then the accessors of x, dy, mean, rstd, gamma, ones.
// Runtime: the addresses of x, dy, mean, rstd, gamma, ones; the first row tile; the number of row tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

template <typename Tensor>
void read_tiles(uint32_t buffer, const Tensor& tensor, uint32_t first, uint32_t count) {
    for (uint32_t tile = first; tile < first + count; ++tile) {
        cb_reserve_back(buffer, 1);
        noc_async_read_page(tile, tensor, get_write_ptr(buffer));
        noc_async_read_barrier();
        cb_push_back(buffer, 1);
    }
}

void kernel_main() {
    constexpr uint32_t width = get_compile_time_arg_val(0);
    constexpr auto x_args = TensorAccessorArgs<1>();
    constexpr auto dy_args = TensorAccessorArgs<x_args.next_compile_time_args_offset()>();
    constexpr auto mean_args = TensorAccessorArgs<dy_args.next_compile_time_args_offset()>();
    constexpr auto rstd_args = TensorAccessorArgs<mean_args.next_compile_time_args_offset()>();
    constexpr auto gamma_args = TensorAccessorArgs<rstd_args.next_compile_time_args_offset()>();
    constexpr auto ones_args = TensorAccessorArgs<gamma_args.next_compile_time_args_offset()>();

    const auto x = TensorAccessor(x_args, get_arg_val<uint32_t>(0));
    const auto dy = TensorAccessor(dy_args, get_arg_val<uint32_t>(1));
    const auto mean = TensorAccessor(mean_args, get_arg_val<uint32_t>(2));
    const auto rstd = TensorAccessor(rstd_args, get_arg_val<uint32_t>(3));
    const auto gamma = TensorAccessor(gamma_args, get_arg_val<uint32_t>(4));
    const auto ones = TensorAccessor(ones_args, get_arg_val<uint32_t>(5));
    const uint32_t first = get_arg_val<uint32_t>(6);
    const uint32_t count = get_arg_val<uint32_t>(7);

    read_tiles(BUFFER_ONES, ones, 0, 1);
    read_tiles(BUFFER_GAMMA, gamma, 0, width);
    for (uint32_t row = first; row < first + count; ++row) {
        read_tiles(BUFFER_MEAN, mean, row, 1);
        read_tiles(BUFFER_RSTD, rstd, row, 1);
        read_tiles(BUFFER_X, x, row * width, width);
        read_tiles(BUFFER_DY, dy, row * width, width);
    }
}
