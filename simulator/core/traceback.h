/* Before the C of each module: Cython's builder of tracebacks is never taken into a function, and branches that lead to
   it are unlikely. gcc takes it into functions of the event loop otherwise, which then save registers for it. */
static void __Pyx_AddTraceback(const char *, int, int, const char *) __attribute__((noinline, cold));
