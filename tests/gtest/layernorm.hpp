// LayerNorm backward in plain C++: bf16 in and out, fp32 in between; right, or with the mean of dy * gamma subtracted twice.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace layernorm {

/// To the nearest bf16, ties to even, as a float.
inline float bf16(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct Inputs {
    std::size_t rows, features;
    std::vector<float> x, gamma, dy;
};

/// x, dy uniform in [-1, 1], gamma in [0, 1], rounded to bf16.
inline Inputs draw(std::size_t rows, std::size_t features, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> both(-1.0f, 1.0f), positive(0.0f, 1.0f);
    Inputs made{rows, features, {}, {}, {}};
    for (std::size_t i = 0; i < rows * features; ++i) {
        made.x.push_back(bf16(both(random)));
        made.dy.push_back(bf16(both(random)));
    }
    for (std::size_t j = 0; j < features; ++j) {
        made.gamma.push_back(bf16(positive(random)));
    }
    return made;
}

struct Outputs {
    std::vector<float> dx, dgamma, dbeta;
};

/// `times`: how often the mean of dy * gamma is subtracted; once is right.
inline Outputs backward(const Inputs& in, double epsilon, int times = 1) {
    const std::size_t n = in.features;
    Outputs out{std::vector<float>(in.rows * n), std::vector<float>(n), std::vector<float>(n)};
    std::vector<double> dgamma(n), dbeta(n);
    for (std::size_t i = 0; i < in.rows; ++i) {
        const float* x = &in.x[i * n];
        const float* dy = &in.dy[i * n];
        double sum = 0.0, squares = 0.0, s1 = 0.0, s2 = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
            sum += x[j];
        }
        const double mean = sum / static_cast<double>(n);
        for (std::size_t j = 0; j < n; ++j) {
            squares += (x[j] - mean) * (x[j] - mean);
        }
        const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
        for (std::size_t j = 0; j < n; ++j) {
            const double product = static_cast<double>(dy[j]) * in.gamma[j], xhat = (x[j] - mean) * rstd;
            s1 += product;
            s2 += product * xhat;
            dgamma[j] += dy[j] * xhat;
            dbeta[j] += dy[j];
        }
        s1 /= static_cast<double>(n);
        s2 /= static_cast<double>(n);
        for (std::size_t j = 0; j < n; ++j) {
            const double product = static_cast<double>(dy[j]) * in.gamma[j], xhat = (x[j] - mean) * rstd;
            out.dx[i * n + j] = bf16(static_cast<float>(rstd * (product - times * s1 - xhat * s2)));
        }
    }
    for (std::size_t j = 0; j < n; ++j) {
        out.dgamma[j] = bf16(static_cast<float>(dgamma[j]));
        out.dbeta[j] = bf16(static_cast<float>(dbeta[j]));
    }
    return out;
}

/// |a - b| <= atol + rtol |b| everywhere.
inline bool allclose(const std::vector<float>& a, const std::vector<float>& b, float rtol, float atol) {
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!(std::fabs(a[i] - b[i]) <= atol + rtol * std::fabs(b[i]))) {
            return false;
        }
    }
    return true;
}

}  // namespace layernorm
