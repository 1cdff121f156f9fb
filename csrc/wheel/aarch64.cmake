# Builds for AArch64 Linux on another machine: cmake -DCMAKE_TOOLCHAIN_FILE=csrc/wheel/aarch64.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
