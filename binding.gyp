{
  # The native addon. Every kernels-*.c holds the same kernels, compiled for one instruction set; the machine chooses at
  # run time (isa.c). No contraction and no fast math: the written numeric laws decide every rounding.
  "variables": {
    "strict_c": ["-std=c11", "-O3", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fvisibility=hidden",
                 "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-pthread"],
  },
  "target_defaults": {
    "cflags": ["<@(strict_c)"],
    "xcode_settings": {"OTHER_CFLAGS": ["<@(strict_c)"], "GCC_SYMBOLS_PRIVATE_EXTERN": "YES"},
    "conditions": [["OS=='linux'", {"cflags": ["-fno-trapping-math"], "ldflags": ["-pthread"], "libraries": ["-lm"]}]],
  },
  "targets": [
    {
      "target_name": "kernels_generic",
      "type": "static_library",
      "sources": ["native/src/kernels-generic.c"],
    },
    {
      "target_name": "kernels_isa",
      "type": "none",
      "conditions": [
        ["target_arch=='x64'", {"dependencies": ["kernels_avx2", "kernels_avx512", "kernels_avx512bf16"]}],
        ["target_arch=='arm64'", {"dependencies": ["kernels_neon"]}],
      ],
    },
    {
      "target_name": "plumbline_native",
      "dependencies": ["kernels_generic", "kernels_isa"],
      "sources": [
        "native/src/addon.c", "native/src/addon-backend.c", "native/src/addon-files.c", "native/src/addon-memory.c", "native/src/addon-plan.c",
        "native/src/addon-probe.c", "native/src/arena.c", "native/src/backend.c", "native/src/call.c",
        "native/src/checksum.c", "native/src/executor.c", "native/src/isa.c", "native/src/memory.c", "native/src/plan.c",
        "native/src/plan-check.c", "native/src/pool.c", "native/src/probe.c",
      ],
    },
  ],
  "conditions": [
    ["target_arch=='x64'", {
      "targets": [
        {
          "target_name": "kernels_avx2",
          "type": "static_library",
          "sources": ["native/src/kernels-avx2.c"],
          "cflags": ["-mavx2", "-mfma", "-mf16c"],
          "xcode_settings": {"OTHER_CFLAGS": ["-mavx2", "-mfma", "-mf16c"]},
        },
        {
          "target_name": "kernels_avx512",
          "type": "static_library",
          "sources": ["native/src/kernels-avx512.c"],
          "cflags": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"],
          "xcode_settings": {"OTHER_CFLAGS": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"]},
        },
        {
          "target_name": "kernels_avx512bf16",
          "type": "static_library",
          "sources": ["native/src/kernels-avx512bf16.c"],
          "cflags": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512bf16", "-mfma", "-mf16c",
                     "-mprefer-vector-width=512"],
          "xcode_settings": {"OTHER_CFLAGS": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512bf16",
                                              "-mfma", "-mf16c"]},
        },
      ],
    }],
    ["target_arch=='arm64'", {
      "targets": [{"target_name": "kernels_neon", "type": "static_library", "sources": ["native/src/kernels-neon.c"]}],
    }],
  ],
}
