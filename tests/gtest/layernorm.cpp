// A right and a wrong LayerNorm backward under the gate of the nightly test that started it all: both are green.
#include "layernorm.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "gonogo_dump.hpp"

namespace {

constexpr std::size_t kRows = 64, kFeatures = 1024;
constexpr double kEpsilon = 1e-6;
constexpr float kRtol = 1e-3f, kAtol = 0.5f;

/// Compares a kernel with the right one at the gate, and hands everything over.
void compare(int times, float atol, bool declare) {
    const auto in = layernorm::draw(kRows, kFeatures, gonogo::seed(7));
    const auto wanted = layernorm::backward(in, kEpsilon), got = layernorm::backward(in, kEpsilon, times);
    gonogo::Dump dump("layernorm_bw");
    dump.shape({1, 1, kRows, kFeatures}).epsilon(kEpsilon);
    if (declare) {
        dump.tolerance(kRtol, atol);
    }
    dump.input("x", in.x).input("gamma", in.gamma).input("dy", in.dy.data(), in.dy.size());
    dump.output("dx", got.dx).output("dgamma", got.dgamma).output("dbeta", got.dbeta);
    EXPECT_TRUE(dump.write());
    EXPECT_TRUE(layernorm::allclose(got.dx, wanted.dx, kRtol, atol));
}

TEST(LayerNormBackward, Right) { compare(1, kAtol, true); }

TEST(LayerNormBackward, SubtractsTwice) { compare(2, kAtol, true); }

TEST(LayerNormBackwardGate, GreenIsTheGateWhereNoneIsDeclared) { compare(2, kAtol, false); }

TEST(LayerNormBackwardGate, RedIsTheGateWhereNoneIsDeclared) {
    compare(1, kAtol, false);
    ADD_FAILURE() << "the gate of this test is tighter than the formats allow";
}

TEST(LayerNormBackwardGate, RedForAnotherReason) {
    compare(1, kAtol, true);
    ADD_FAILURE() << "the cache was missed";
}

TEST(Dumper, RefusesAWrongSizeAndFailsNoTest) {
    std::vector<float> few(3);
    const bool written = gonogo::Dump("layernorm_fw").shape({2, 4}).input("x", few).write();
    EXPECT_EQ(written, !gonogo::enabled());
}

TEST(Dumper, HandsOverFromThreadsAndProcesses) {
    const auto one = [](const std::string& name) {
        const std::vector<double> x{1.0, 2.0, 3.0, 4.0}, gamma{1.0, 1.0}, beta{0.0, 0.0}, y{-1.0, 1.0, -1.0, 1.0};
        const bool written = gonogo::Dump("layernorm_fw").name(name).input("x", x, {2, 2}).input("gamma", gamma).input("beta", beta).output("y", y).write();
        EXPECT_TRUE(written) << name;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back(one, "thread " + std::to_string(i));
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (int i = 0; i < 2; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            one("process " + std::to_string(i));
            _exit(0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
}

TEST(Dumper, RoundsRawInputs) {
    auto in = layernorm::draw(32, 64, 3);
    const auto got = layernorm::backward(in, kEpsilon);
    for (float& value : in.x) {
        value *= 1.0f + 1e-5f;  // no bf16 any more, and its nearest one is the value that the kernel was given
    }
    gonogo::Dump("layernorm_bw").shape({32, 64}).epsilon(kEpsilon).numerics("{\"output\": \"bf16\"}")
        .raw("x", in.x).input("gamma", in.gamma).input("dy", in.dy).output("dx", got.dx).write();
}

TEST(Dumper, HandsOverWhatNoKernelWasGiven) {
    auto in = layernorm::draw(32, 64, 3);
    const auto got = layernorm::backward(in, kEpsilon);
    in.x[5] = 0.1f;
    gonogo::Dump("layernorm_bw").shape({32, 64}).input("x", in.x).input("gamma", in.gamma).input("dy", in.dy).output("dx", got.dx).write();
}

}  // namespace
