__global__ void other() {}
extern "C" __global__ void kernel(const float* x, float* y, long long n) {
    other<<<1, 1>>>();
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
