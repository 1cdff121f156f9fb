// Included before every source of a wheel (CMakeLists.txt, DRUT_MANYLINUX). Binds the thread functions to symbol
// versions that every glibc from 2.28 on has, whatever glibc the build uses: glibc 2.34 moved them from libpthread into
// libc.
#pragma once
#if defined(__GLIBC__) || defined(__linux__)
#include <features.h>
#endif
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_join,pthread_join@GLIBC_2.2.5");
__asm__(".symver pthread_getaffinity_np,pthread_getaffinity_np@GLIBC_2.3.4");
__asm__(".symver pthread_setaffinity_np,pthread_setaffinity_np@GLIBC_2.3.4");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_create,pthread_create@GLIBC_2.17");
__asm__(".symver pthread_join,pthread_join@GLIBC_2.17");
__asm__(".symver pthread_getaffinity_np,pthread_getaffinity_np@GLIBC_2.17");
__asm__(".symver pthread_setaffinity_np,pthread_setaffinity_np@GLIBC_2.17");
#endif
