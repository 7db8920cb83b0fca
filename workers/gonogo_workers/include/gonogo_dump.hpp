// gonogo_dump.hpp: lets a C++ test hand the arrays of a kernel to GoNoGo, which tells whether rounding explains their error.
//
// One header, C++17, POSIX, nothing to link. It does nothing unless the environment variable GONOGO_DUMP_DIR is set;
// the gtest executor of a GoNoGo worker sets it. Example (docs/gtest.md has a complete one):
//
//     #include <gtest/gtest.h>
//     #include "gonogo_dump.hpp"       // after gtest's, so that it knows which test is running
//
//     gonogo::Dump("layernorm_bw")
//         .shape({3, 273, 1, 8462}).epsilon(1e-6).tolerance(1e-3, 0.5)
//         .input("x", x).input("gamma", gamma).input("dy", dy).input("mean", mean).input("rstd", rstd)
//         .output("dx", dx)
//         .write();
//
// Inputs are the values that the kernel received, so the test's input format (numerics; bf16 by default) can represent them.
// raw() takes the values before they were rounded to that format. A problem never fails the test: write() returns false and
// prints the reason on stderr.
//
// Files: GONOGO_DUMP_DIR/<process>-<number>/manifest.json and one .npy (little-endian float32, C order) for each tensor. The
// folder gets its final name when it is complete, so a crash leaves no partial dump. Threads and forked processes may write
// at the same time.
#ifndef GONOGO_DUMP_HPP
#define GONOGO_DUMP_HPP

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gonogo {

/// Return whether arrays are to be handed over.
inline bool enabled() noexcept {
    const char* folder = std::getenv("GONOGO_DUMP_DIR");
    return folder != nullptr && *folder != '\0';
}

/// Return the seed of this run: GONOGO_SEED where the job controls it, else the number of the iteration, else `otherwise`.
inline std::uint64_t seed(std::uint64_t otherwise = 0) noexcept {
    for (const char* name : {"GONOGO_SEED", "GONOGO_ITERATION"}) {
        const char* text = std::getenv(name);
        if (text != nullptr && *text != '\0') {
            return std::strtoull(text, nullptr, 10);
        }
    }
    return otherwise;
}

namespace detail {

using Namer = std::string (*)();

/// The function that returns the running test's name; set by each file that includes GoogleTest before this header.
inline std::atomic<Namer>& namer() {
    static std::atomic<Namer> found{nullptr};
    return found;
}

inline std::string running_test() {
    const Namer name = namer().load();
    return name == nullptr ? std::string() : name();
}

inline std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if (letter == '"' || letter == '\\') {
            out += '\\';
            out += letter;
        } else if (code < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(code));
            out += escape;
        } else {
            out += letter;
        }
    }
    return out + '"';
}

/// Return a number as JSON; `valid` becomes false for a number that JSON can't represent.
inline std::string number(double value, bool& valid) {
    if (!std::isfinite(value)) {
        valid = false;
        return "null";
    }
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    for (char* letter = text; *letter != '\0'; ++letter) {
        if (*letter == ',') {  // a locale's decimal comma
            *letter = '.';
        }
    }
    return text;
}

inline std::string joined(const std::vector<std::size_t>& shape, const char* after_last) {
    std::string out;
    for (std::size_t place = 0; place < shape.size(); ++place) {
        out += std::to_string(shape[place]) + (place + 1 < shape.size() ? ", " : after_last);
    }
    return out;
}

inline std::size_t elements(const std::vector<std::size_t>& shape) {
    std::size_t count = 1;
    for (const std::size_t length : shape) {
        count *= length;
    }
    return count;
}

/// Return the header of a version 1.0 .npy file, padded to a multiple of 64 bytes.
inline std::string npy_header(const std::vector<std::size_t>& shape) {
    const std::uint16_t one = 1;
    unsigned char first = 0;
    std::memcpy(&first, &one, 1);
    std::string words = std::string("{'descr': '") + (first == 1 ? "<f4" : ">f4") + "', 'fortran_order': False, 'shape': (" +
                        joined(shape, shape.size() == 1 ? "," : "") + "), }";
    const std::size_t bare = 10 + words.size() + 1;
    words.append((64 - bare % 64) % 64, ' ');
    words += '\n';
    std::string out("\x93NUMPY\x01\x00", 8);
    out += static_cast<char>(words.size() & 0xff);
    out += static_cast<char>(words.size() >> 8);
    return out + words;
}

/// Write a new file; return an empty string on success, else the error.
inline std::string store(const std::string& path, const void* head, std::size_t head_size, const void* body, std::size_t body_size) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    std::string problem = file < 0 ? std::strerror(errno) : "";
    const std::pair<const void*, std::size_t> parts[] = {{head, head_size}, {body, body_size}};
    for (const auto& [data, size] : parts) {
        std::size_t done = 0;
        while (problem.empty() && done < size) {
            const ssize_t written = ::write(file, static_cast<const char*>(data) + done, size - done);
            if (written > 0) {
                done += static_cast<std::size_t>(written);
            } else if (written < 0 && errno != EINTR) {
                problem = std::strerror(errno);
            }
        }
    }
    if (file >= 0 && ::close(file) != 0 && problem.empty()) {
        problem = std::strerror(errno);
    }
    return problem.empty() ? problem : path + ": " + problem;
}

inline std::atomic<unsigned long>& counter() {
    static std::atomic<unsigned long> count{0};
    return count;
}

}  // namespace detail

/// The arrays of one run of a kernel, collected and then written. Values are copied as float32 when they are added.
class Dump {
public:
    /// `kernel`: "layernorm_fw" or "layernorm_bw". `test`: the test that hands the arrays over ("Suite.Name"; default: the running one).
    explicit Dump(std::string kernel, std::string test = "")
        : wanted_(enabled()), kernel_(std::move(kernel)), test_(std::move(test)) {
        if (wanted_ && test_.empty()) {
            test_ = detail::running_test();
        }
    }

    /// Set the shape of x; the last dimension is the length of a row. The default is the shape given with x.
    Dump& shape(std::vector<std::size_t> lengths) {
        shape_ = std::move(lengths);
        return *this;
    }

    Dump& epsilon(double value) {
        return field("epsilon", value);
    }

    /// Set the test's tolerance: |error| <= atol + rtol |reference|. Without it, the test's own green or red counts.
    Dump& tolerance(double rtol, double atol) {
        bool valid = true;
        const std::string words = "{\"rtol\": " + detail::number(rtol, valid) + ", \"atol\": " + detail::number(atol, valid) + "}";
        valid_ = valid_ && valid;
        return json("tolerance", words);
    }

    /// Set the formats of the kernel as JSON, such as R"({"input": "bf16", "output": "fp32"})"; see docs/spec.md.
    Dump& numerics(const std::string& words) {
        return json("numerics", words);
    }

    /// Set any other field of a test as JSON, such as json("program", "\"legacy\"").
    Dump& json(const std::string& name, const std::string& words) {
        if (wanted_) {
            fields_[name] = words;
        }
        return *this;
    }

    Dump& field(const std::string& name, double value) {
        bool valid = true;
        const std::string words = detail::number(value, valid);
        valid_ = valid_ && valid;
        return json(name, words);
    }

    /// Declare the arithmetic of the kernel ("tt-train", "ttnn", "fused", ...), used where the build declares none.
    Dump& arithmetic(std::string name) {
        arithmetic_ = std::move(name);
        return *this;
    }

    /// Set a name that distinguishes several dumps of one test.
    Dump& name(std::string words) {
        name_ = std::move(words);
        return *this;
    }

    /// Add an input tensor of the kernel (x, dy, gamma, beta, mean, rstd): `count` values of any arithmetic type.
    template <typename T>
    Dump& input(const std::string& tensor, const T* values, std::size_t count, std::vector<std::size_t> lengths = {}) {
        return add(tensors_, tensor, values, values + count, std::move(lengths));
    }

    /// Add an input from a container with begin() and end(): std::vector, std::array, std::span, xt::xarray.
    template <typename Container, typename = decltype(std::begin(std::declval<const Container&>()))>
    Dump& input(const std::string& tensor, const Container& values, std::vector<std::size_t> lengths = {}) {
        return add(tensors_, tensor, std::begin(values), std::end(values), std::move(lengths));
    }

    /// Add a tensor before rounding to the kernel's input format: tolerances compare with its result. Without the input itself,
    /// the input is this tensor rounded to its format.
    template <typename T>
    Dump& raw(const std::string& tensor, const T* values, std::size_t count, std::vector<std::size_t> lengths = {}) {
        return add(raw_, tensor, values, values + count, std::move(lengths));
    }

    template <typename Container, typename = decltype(std::begin(std::declval<const Container&>()))>
    Dump& raw(const std::string& tensor, const Container& values, std::vector<std::size_t> lengths = {}) {
        return add(raw_, tensor, std::begin(values), std::end(values), std::move(lengths));
    }

    /// Add an output tensor of the kernel: y, mean, rstd; dx, dgamma, dbeta.
    template <typename T>
    Dump& output(const std::string& tensor, const T* values, std::size_t count, std::vector<std::size_t> lengths = {}) {
        return add(tensors_, tensor, values, values + count, std::move(lengths));
    }

    template <typename Container, typename = decltype(std::begin(std::declval<const Container&>()))>
    Dump& output(const std::string& tensor, const Container& values, std::vector<std::size_t> lengths = {}) {
        return add(tensors_, tensor, std::begin(values), std::end(values), std::move(lengths));
    }

    /// Write the collected arrays. Return true when they were written or not requested; false, with a line on stderr, on failure.
    bool write() noexcept {
        if (!wanted_) {
            return true;
        }
        try {
            const std::string problem = problem_.empty() ? written() : problem_;
            if (problem.empty()) {
                return true;
            }
            say(problem.c_str());
        } catch (const std::exception& error) {
            say(error.what());
        } catch (...) {
            say("out of memory, or worse");
        }
        return false;
    }

private:
    struct Tensor {
        std::vector<float> values;
        std::vector<std::size_t> shape;
    };
    using Tensors = std::map<std::string, Tensor>;

    template <typename Iterator>
    Dump& add(Tensors& where, const std::string& tensor, Iterator begin, Iterator end, std::vector<std::size_t> lengths) {
        if (!wanted_) {
            return *this;
        }
        try {
            Tensor found;
            for (; begin != end; ++begin) {
                found.values.push_back(static_cast<float>(*begin));
            }
            if (!lengths.empty() && detail::elements(lengths) != found.values.size() && problem_.empty()) {
                problem_ = tensor + " has " + std::to_string(found.values.size()) + " values, which is not the shape (" +
                           detail::joined(lengths, "") + ")";
            }
            if (tensor == "x" && shape_.empty()) {
                shape_ = lengths;
            }
            found.shape = lengths.empty() ? std::vector<std::size_t>{found.values.size()} : std::move(lengths);
            where[tensor] = std::move(found);
        } catch (const std::exception& error) {  // a test must not fail because its arrays don't fit into memory twice
            problem_ = tensor + ": " + error.what();
        }
        return *this;
    }

    void say(const char* problem) const noexcept {
        std::fprintf(stderr, "\ngonogo_dump: %s%s%s\n", kernel_.c_str(), ": ", problem);
        std::fflush(stderr);
    }

    std::string written() {
        if (!valid_) {
            return "epsilon, tolerance and other numbers must be finite";
        }
        if (shape_.empty()) {
            return "no shape: call shape({...}), or give x one";
        }
        for (auto* tensors : {&tensors_, &raw_}) {
            for (auto& [tensor, found] : *tensors) {
                const std::string problem = fit(tensor, found);
                if (!problem.empty()) {
                    return problem;
                }
            }
        }
        const std::string folder = std::getenv("GONOGO_DUMP_DIR");
        std::string hidden;
        std::string final;
        do {  // the number is taken if an earlier process had this id
            const std::string own = std::to_string(static_cast<long>(::getpid())) + "-" + std::to_string(detail::counter()++);
            hidden = folder + "/." + own;
            final = folder + "/" + own;
        } while (::access(final.c_str(), F_OK) == 0 || (::mkdir(hidden.c_str(), 0700) != 0 && errno == EEXIST));
        std::string problem;
        std::string names[2];
        int kind = 0;
        for (auto* tensors : {&tensors_, &raw_}) {
            for (const auto& [tensor, found] : *tensors) {
                const std::string file = (kind == 0 ? "" : "raw-") + tensor + ".npy";
                names[kind] += (names[kind].empty() ? "" : ", ") + detail::quoted(tensor) + ": " + detail::quoted(file);
                const std::string head = detail::npy_header(found.shape);
                problem = detail::store(hidden + "/" + file, head.data(), head.size(), found.values.data(),
                                        found.values.size() * sizeof(float));
                if (!problem.empty()) {
                    return problem;
                }
            }
            ++kind;
        }
        const std::string manifest = "{\"test\": " + detail::quoted(test_) + ", \"name\": " + (name_.empty() ? "null" : detail::quoted(name_)) +
                                     ", \"arithmetic\": " + (arithmetic_.empty() ? "null" : detail::quoted(arithmetic_)) +
                                     ", \"kernel\": " + detail::quoted(kernel_) + ", \"fields\": " + fields() + ", \"tensors\": {" + names[0] +
                                     "}, \"raw\": {" + names[1] + "}}\n";
        problem = detail::store(hidden + "/manifest.json", manifest.data(), manifest.size(), nullptr, 0);
        if (problem.empty() && std::rename(hidden.c_str(), final.c_str()) != 0) {
            problem = final + ": " + std::strerror(errno);
        }
        return problem;
    }

    /// Check a tensor's size against the shape of the test, and set its shape where it came without one.
    std::string fit(const std::string& tensor, Tensor& found) const {
        const bool whole = tensor == "x" || tensor == "dy" || tensor == "y" || tensor == "dx";
        if (!whole && kernel_.rfind("layernorm_", 0) != 0) {  // for other kernels only GoNoGo knows the shapes
            if (found.shape.empty()) {
                found.shape = {found.values.size()};
            }
            return "";
        }
        const bool per_row = tensor == "mean" || tensor == "rstd";
        const std::vector<std::size_t> rows(shape_.begin(), shape_.end() - 1);
        const std::vector<std::size_t> expected = whole ? shape_ : per_row ? rows : std::vector<std::size_t>{shape_.back()};
        if (found.values.size() != detail::elements(expected)) {
            return tensor + " has " + std::to_string(found.values.size()) + " values; the test's shape asks for (" +
                   detail::joined(expected, "") + ")";
        }
        found.shape = expected;
        return "";
    }

    /// Return the test's JSON; a backward kernel without given statistics computed its own.
    std::string fields() const {
        std::map<std::string, std::string> all = fields_;
        all["shape"] = "[" + detail::joined(shape_, "") + "]";
        const bool given = tensors_.count("mean") + tensors_.count("rstd") + raw_.count("mean") + raw_.count("rstd") > 0;
        if ((kernel_ == "layernorm_bw" || kernel_ == "rmsnorm_bw") && !given) {
            std::string& numerics = all["numerics"];
            if (numerics.empty()) {
                numerics = "{\"statistics\": \"own\"}";
            } else if (numerics.find("\"statistics\"") == std::string::npos) {
                const std::size_t place = numerics.find('{') + 1;
                const bool bare = numerics.find_first_not_of(" \t\r\n}", place) == std::string::npos;
                numerics.insert(place, bare ? "\"statistics\": \"own\"" : "\"statistics\": \"own\", ");
            }
        }
        std::string out;
        for (const auto& [name, words] : all) {
            out += (out.empty() ? "" : ", ") + detail::quoted(name) + ": " + words;
        }
        return "{" + out + "}";
    }

    bool wanted_;
    bool valid_ = true;
    std::string problem_;
    std::string kernel_;
    std::string test_;
    std::string name_;
    std::string arithmetic_;
    std::vector<std::size_t> shape_;
    std::map<std::string, std::string> fields_;
    Tensors tensors_;
    Tensors raw_;
};

}  // namespace gonogo

// GoogleTest knows which test is running. Its include guard has had two names.
#if defined(GOOGLETEST_INCLUDE_GTEST_GTEST_H_) || defined(GTEST_INCLUDE_GTEST_GTEST_H_)
namespace {
[[maybe_unused]] const bool gonogo_dump_knows_gtest = [] {
    gonogo::detail::namer().store([]() -> std::string {
        const ::testing::TestInfo* running = ::testing::UnitTest::GetInstance()->current_test_info();
        return running == nullptr ? std::string() : std::string(running->test_suite_name()) + "." + running->name();
    });
    return true;
}();
}  // namespace
#endif

#endif  // GONOGO_DUMP_HPP
