// Writes dx, tile by tile, as layernorm_bw's compute kernel produces it.
//
// Compile-time: tiles in a row, then the accessor of dx. Runtime: the address of dx; the first row tile; the number of row tiles.

#include <cstdint>

#include "api/dataflow/dataflow_api.h"

void kernel_main() {
    constexpr uint32_t width = get_compile_time_arg_val(0);
    constexpr auto dx_args = TensorAccessorArgs<1>();
    const auto dx = TensorAccessor(dx_args, get_arg_val<uint32_t>(0));
    const uint32_t first = get_arg_val<uint32_t>(1) * width;
    const uint32_t count = get_arg_val<uint32_t>(2) * width;

    for (uint32_t tile = first; tile < first + count; ++tile) {
        cb_wait_front(BUFFER_DX, 1);
        noc_async_write_page(tile, dx, get_read_ptr(BUFFER_DX));
        noc_async_write_barrier();
        cb_pop_front(BUFFER_DX, 1);
    }
}
