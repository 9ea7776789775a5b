import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools in one JVM, several at the same time. Each has its own input, outputs and exit code.
 *
 * <p>A command is one line. Fields are separated by tabs, and text is in base64: start ID CLASS INPUT ARGUMENT...; wait ID.
 * The threads of a tool inherit the reference to the tool. Shutdown hooks of a tool run when its main method has ended.
 */
public class Tools {
    private static final InheritableThreadLocal<Tool> CURRENT = new InheritableThreadLocal<>();

    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** Loads the classes of the tools again for each run, because they have static counters. Clients and libraries are shared. */
    private static final class ToolClassLoader extends ClassLoader {
        ToolClassLoader() {
            super(Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") || name.startsWith("org.apache.kafka.tools.api.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? define(name) : loaded;
            }
        }

        private Class<?> define(String name) throws ClassNotFoundException {
            try (InputStream in = getParent().getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (in == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] bytes = in.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (java.io.IOException failed) {
                throw new ClassNotFoundException(name, failed);
            }
        }
    }

    private static final class Tool implements Runnable {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        final ClassLoader loader = new ToolClassLoader();
        final InputStream in;
        final String mainClass;
        final String[] arguments;
        Integer exitCode;
        volatile boolean exiting;
        Thread thread;

        Tool(String mainClass, byte[] input, String[] arguments) {
            this.mainClass = mainClass;
            this.in = new ByteArrayInputStream(input);
            this.arguments = arguments;
        }

        @Override
        public void run() {
            CURRENT.set(this);
            Thread.currentThread().setContextClassLoader(loader);
            try {
                loader.loadClass(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (Throwable failed) {
                if (exit(1)) {
                    failed.printStackTrace(new PrintStream(err, true));
                }
            }
            exiting = false;
            shutdown();
            exit(0);
        }

        /** Returns false after an exit: a main method may catch the Error that replaces it, and print what a process would not. */
        boolean printsOutput() {
            return !(exiting && Thread.currentThread() == thread);
        }

        /** Sets the exit code unless it is set: the first exit of a process decides its code. */
        synchronized boolean exit(int code) {
            boolean first = exitCode == null;
            exitCode = first ? code : exitCode;
            return first;
        }

        /** Runs the shutdown hooks of the tool. */
        void shutdown() {
            try {
                takeHooksFromRuntime();
                hooks.forEach(Runnable::run);
            } catch (Exception failed) {
                failed.printStackTrace(new PrintStream(err, true));
            }
        }

        /** Takes over hooks that a tool registered without Exit. The class loader of their threads identifies the tool. */
        private void takeHooksFromRuntime() throws ReflectiveOperationException {
            Class<?> registry = Class.forName("java.lang.ApplicationShutdownHooks");
            Field field = registry.getDeclaredField("hooks");
            field.setAccessible(true);
            synchronized (registry) {
                for (Object registered : List.copyOf(((Map<?, ?>) field.get(null)).keySet())) {
                    Thread hook = (Thread) registered;
                    if (hook.getContextClassLoader() == loader) {
                        Runtime.getRuntime().removeShutdownHook(hook);
                        hooks.add(hook::run);
                    }
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(new PrintStream(outputOfTool(false), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(outputOfTool(true), true, StandardCharsets.UTF_8));
        InputStream commandsIn = System.in;
        System.setIn(new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                return CURRENT.get().in.read();
            }

            @Override
            public int read(byte[] bytes, int offset, int length) throws java.io.IOException {
                return CURRENT.get().in.read(bytes, offset, length);
            }
        });
        Exit.setExitProcedure((code, message) -> leave(code));
        Exit.setHaltProcedure((code, message) -> leave(code));
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().hooks.add(hook));
        BufferedReader commands = new BufferedReader(new InputStreamReader(commandsIn, StandardCharsets.UTF_8));
        Map<String, Tool> tools = new HashMap<>();
        replies.println("ok");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                run(line.split("\t", -1), tools, replies);
                replies.println("ok");
            } catch (Throwable failed) {
                replies.println("error\t" + failed.getClass().getSimpleName() + "\t" + failed);
            }
        }
        System.exit(0);
    }

    private static void leave(int code) {
        Tool tool = CURRENT.get();
        tool.exit(code);
        tool.exiting = Thread.currentThread() == tool.thread;
        throw new Exited();
    }

    private static OutputStream outputOfTool(boolean errors) {
        return new OutputStream() {
            @Override
            public void write(int value) {
                write(new byte[] {(byte) value}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int offset, int length) {
                Tool tool = CURRENT.get();
                if (tool != null && tool.printsOutput()) {
                    (errors ? tool.err : tool.out).write(bytes, offset, length);
                }
            }
        };
    }

    private static void run(String[] command, Map<String, Tool> tools, PrintStream replies) throws Exception {
        String id = command[1];
        switch (command[0]) {
            case "start" -> {
                String[] arguments = Arrays.stream(command, 4, command.length).map(Tools::text).toArray(String[]::new);
                Tool tool = new Tool(command[2], Base64.getDecoder().decode(command[3]), arguments);
                tool.thread = new Thread(tool, id);
                tool.thread.setDaemon(true);
                tools.put(id, tool);
                tool.thread.start();
            }
            case "wait" -> {
                Tool tool = tools.get(id);
                tool.thread.join();
                tools.remove(id);
                print(tool, replies);
            }
            default -> throw new IllegalArgumentException(command[0]);
        }
    }

    private static void print(Tool tool, PrintStream replies) {
        Base64.Encoder encoder = Base64.getEncoder();
        replies.println("output\t" + tool.exitCode + "\t" + encoder.encodeToString(tool.out.toByteArray()) + "\t"
                + encoder.encodeToString(tool.err.toByteArray()));
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
