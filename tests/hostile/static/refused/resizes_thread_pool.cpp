#include <cstdint>
#include <cmath>
extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    #pragma omp parallel for num_threads(4)
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i];
}
