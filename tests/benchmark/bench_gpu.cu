// What issuing a kernel and a copy takes on a GPU: nvcc -arch=native bench_gpu.cu && ./a.out
//
// Kernels that do nothing, one after the other, and with the host waiting for each; copies between
// pinned memory and the device, one after the other. Microseconds of each by the host's clock: what,
// case, bytes, median and quartiles of 31 rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

__global__ void nothing() {}

template <class Step>
void timed(const char *what, const char *which, size_t bytes, int calls, Step step) {
  std::vector<double> taken;
  for (int round = 0; round < 34; ++round) {
    cudaDeviceSynchronize();
    auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) step();
    cudaDeviceSynchronize();
    std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
    if (round > 2) taken.push_back(passed.count() / calls);
  }
  std::sort(taken.begin(), taken.end());
  printf("%s,%s,%zu,%.4g,%.4g,%.4g\n", what, which, bytes, taken[15], taken[7], taken[23]);
}

int main() {
  const size_t largest = size_t(1) << 30;
  void *host, *there;
  if (cudaMallocHost(&host, largest) || cudaMalloc(&there, largest)) return 1;
  timed("launch", "async", 0, 1000, [] { nothing<<<1, 1>>>(); });
  timed("launch", "host waits", 0, 1000, [] { nothing<<<1, 1>>>(); cudaDeviceSynchronize(); });
  for (size_t bytes = 4; bytes <= largest; bytes *= 4) {
    int calls = bytes > 10000000 ? 4 : 100;
    timed("copy", "to device", bytes, calls,
          [&] { cudaMemcpyAsync(there, host, bytes, cudaMemcpyHostToDevice); });
    timed("copy", "to host", bytes, calls,
          [&] { cudaMemcpyAsync(host, there, bytes, cudaMemcpyDeviceToHost); });
  }
  return cudaGetLastError() != cudaSuccess;
}
