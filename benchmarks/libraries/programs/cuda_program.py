"""Norms in CUDA C++ as they are written by hand, compiled by NVRTC on a GPU.

Each kernel loads values, computes in fp32 and stores one rounding of the result. They differ in
what changes the numbers: how a block adds up (shuffles, shared memory, Welford's merges, the
squares beside the sum), the inverse root (rsqrtf is within 2 ulp; 1 / sqrtf is rounded twice),
fused multiply-adds, -use_fast_math, and column sums by atomics in any order or by a thread per
column.

The host rounds the fp32 results to 16 bits, to nearest even, as __float2bfloat16_rn does.
"""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import cupy
import numpy as np
from protocol import Kernel, serve

THREADS = 256
SOURCE = r"""
#ifdef EXACT_ROOT
#define INVERSE_ROOT(v) (1.0f / sqrtf(v))
#else
#define INVERSE_ROOT(v) rsqrtf(v)
#endif

__device__ float sum_of_block(float value) {
    __shared__ float partial[33];
    __syncthreads();
#ifdef SHARED_TREE
    __shared__ float tree[256];
    tree[threadIdx.x] = value;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[32] = tree[0];
#else
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_down_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int step = 16; step > 0; step /= 2)
            value += __shfl_down_sync(0xffffffffu, value, step);
        if (threadIdx.x == 0) partial[32] = value;
    }
#endif
    __syncthreads();
    return partial[32];
}

#ifdef WELFORD
__device__ void merge(float& mean, float& squares, float& count, float m, float s, float n) {
    if (n == 0.0f) return;
    float total = count + n, off = m - mean, share = n / total;
    mean += off * share;
    squares += s + off * off * count * share;
    count = total;
}
#endif

// The mean and 1 / sqrt(variance + epsilon) of n values; without a mean, of the mean square.
__device__ void statistics(const float* x, int n, float epsilon, bool centered,
                           float& mean, float& rstd) {
    float variance;
    mean = 0.0f;
#ifdef WELFORD
    if (centered) {
        float m = 0.0f, s = 0.0f, count = 0.0f;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            count += 1.0f;
            float off = x[i] - m;
            m += off / count;
            s += off * (x[i] - m);
        }
        __shared__ float means[256], sums[256], counts[256];
        means[threadIdx.x] = m; sums[threadIdx.x] = s; counts[threadIdx.x] = count;
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) {
                int other = threadIdx.x + half;
                merge(means[threadIdx.x], sums[threadIdx.x], counts[threadIdx.x],
                      means[other], sums[other], counts[other]);
            }
        }
        __syncthreads();
        mean = means[0];
        variance = sums[0] / n;
        rstd = INVERSE_ROOT(variance + epsilon);
        return;
    }
#endif
#ifdef ONE_PASS
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) { sum += x[i]; squares += x[i] * x[i]; }
    if (centered) mean = sum_of_block(sum) / n;
    variance = fmaxf(sum_of_block(squares) / n - mean * mean, 0.0f);
#else
    float sum = 0.0f;
    if (centered) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
        mean = sum_of_block(sum) / n;
    }
    float squares = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float off = x[i] - mean;
        squares += off * off;
    }
    variance = sum_of_block(squares) / n;
#endif
    rstd = INVERSE_ROOT(variance + epsilon);
}

extern "C" __global__ void norm_of_rows(
    const float* x, const float* gamma, const float* beta, float* y,
    int n, int stride, int groups, float epsilon, int centered) {
    // a block per row; a row of a group norm holds n / stride channels, one gamma each
    x += (size_t)blockIdx.x * n; y += (size_t)blockIdx.x * n;
    int first = groups ? blockIdx.x % groups * (n / stride) : 0;
    float mean, rstd;
    statistics(x, n, epsilon, centered, mean, rstd);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int channel = first + i / stride;
#ifdef SCALED
        float a = rstd * gamma[channel];
        y[i] = centered ? x[i] * a + (beta[channel] - mean * a) : x[i] * a;
#else
        float normalized = (x[i] - mean) * rstd;
        y[i] = centered ? normalized * gamma[channel] + beta[channel] : normalized * gamma[channel];
#endif
    }
}

extern "C" __global__ void rows_of_gradient(
    const float* x, const float* gamma, const float* dy, float* dx, float* means, float* rstds,
    float* dgamma, float* dbeta, int n, float epsilon, int centered) {
    size_t start = (size_t)blockIdx.x * n;
    float mean, rstd, s1 = 0.0f, s2 = 0.0f;
    statistics(x + start, n, epsilon, centered, mean, rstd);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float p = dy[start + i] * gamma[i];
        s1 += p;
        s2 += p * ((x[start + i] - mean) * rstd);
    }
    s1 = centered ? sum_of_block(s1) / n : 0.0f;
    s2 = sum_of_block(s2) / n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float normalized = (x[start + i] - mean) * rstd;
        dx[start + i] = rstd * (dy[start + i] * gamma[i] - s1 - normalized * s2);
#ifdef ATOMICS
        atomicAdd(dgamma + i, dy[start + i] * normalized);
        if (centered) atomicAdd(dbeta + i, dy[start + i]);
#endif
    }
    if (threadIdx.x == 0) { means[blockIdx.x] = mean; rstds[blockIdx.x] = rstd; }
}

extern "C" __global__ void columns_of_gradient(
    const float* x, const float* dy, const float* means, const float* rstds,
    float* dgamma, float* dbeta, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float scale = 0.0f, shift = 0.0f;
    for (int row = 0; row < rows; ++row) {
        size_t place = (size_t)row * n + i;
        scale += dy[place] * ((x[place] - means[row]) * rstds[row]);
        shift += dy[place];
    }
    dgamma[i] = scale;
    dbeta[i] = shift;
}
"""
VARIANTS = {
    "shuffles": (),
    "shared memory, 1/sqrt": ("-DSHARED_TREE", "-DEXACT_ROOT"),
    "without fused multiply-adds": ("--fmad=false",),
    "fast math": ("-use_fast_math",),
    "Welford": ("-DWELFORD",),
    "one pass": ("-DONE_PASS",),
    "x a + b": ("-DSCALED",),
    "atomics": ("-DATOMICS",),
}
FORWARD_ONLY = ("x a + b",)
BACKWARD_ONLY = ("atomics",)


def rounded(values, number_format):
    """Return fp32 values rounded to the format, to nearest even."""
    values = cupy.asnumpy(values)
    if number_format == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if number_format == "bf16":
        bits = values.view(np.uint32)
        even = ((bits >> 16) & 1) + np.uint32(0x7FFF)
        wide = ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isfinite(values), wide, values)
    return values


def module_of(options):
    """Return the compiled module of a variant."""
    return cupy.RawModule(code=SOURCE, options=("--std=c++17", *options))


def floats(shape):
    """Return zeros on the GPU."""
    return cupy.zeros(shape, cupy.float32)


def forward(options, is_centered):
    """Return a kernel of y."""

    def run_forward(inputs, run):
        t = {name: cupy.asarray(values) for name, values in inputs.items()}
        x = t["x"]
        groups = run.groups or 0
        rows = x.shape[0] * (groups or 1)
        n = x.size // rows
        stride = x.size // (x.shape[0] * x.shape[1]) if groups else 1
        y = floats(x.shape)
        arguments = (x, t["gamma"], t.get("beta", t["gamma"]), y, np.int32(n), np.int32(stride))
        arguments += (np.int32(groups), np.float32(run.epsilon), np.int32(is_centered))
        module_of(options).get_function("norm_of_rows")((rows,), (THREADS,), arguments)
        return {"y": rounded(y, run.format)}

    return run_forward


def backward(options, is_centered):
    """Return a kernel of dx, dgamma and, with a mean, dbeta."""

    def run_backward(inputs, run):
        x, gamma, dy = (cupy.asarray(inputs[name]) for name in ("x", "gamma", "dy"))
        rows, n = x.shape
        dx, dgamma, dbeta = floats(x.shape), floats(n), floats(n)
        means, rstds = floats(rows), floats(rows)
        module = module_of(options)
        arguments = (x, gamma, dy, dx, means, rstds, dgamma, dbeta, np.int32(n))
        arguments += (np.float32(run.epsilon), np.int32(is_centered))
        module.get_function("rows_of_gradient")((rows,), (THREADS,), arguments)
        if "-DATOMICS" not in options:
            arguments = (x, dy, means, rstds, dgamma, dbeta, np.int32(rows), np.int32(n))
            blocks = -(-n // THREADS)
            module.get_function("columns_of_gradient")((blocks,), (THREADS,), arguments)
        outputs = {"dx": dx, "dgamma": dgamma} | ({"dbeta": dbeta} if is_centered else {})
        return {name: rounded(values, run.format) for name, values in outputs.items()}

    return run_backward


def all_kernels():
    """Return every variant of every norm."""
    kernels = []
    for name, options in VARIANTS.items():
        if name not in BACKWARD_ONLY:
            kernels.append(Kernel(name, "layernorm_fw", forward(options, True)))
            kernels.append(Kernel(name, "groupnorm_fw", forward(options, True)))
        if name not in (*BACKWARD_ONLY, "Welford"):
            kernels.append(Kernel(name, "rmsnorm_fw", forward(options, False)))
        if name not in FORWARD_ONLY:
            kernels.append(Kernel(name, "layernorm_bw", backward(options, True)))
        if name not in (*FORWARD_ONLY, "Welford"):
            kernels.append(Kernel(name, "rmsnorm_bw", backward(options, False)))
    return kernels


if __name__ == "__main__":
    version = cupy.cuda.nvrtc.getVersion()
    versions = {"cupy": cupy.__version__, "nvrtc": ".".join(map(str, version))}
    serve(all_kernels(), versions)
