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
 * The main methods of Kafka's tools in one JVM, several at a time, each with an input, outputs and an exit code of its own.
 *
 * <p>One command a line, fields separated by tabs, text in base64: start ID CLASS INPUT ARGUMENT...; wait ID.
 * The threads of a tool inherit whose they are. What a tool hands to the JVM's shutdown runs when its main method has ended.
 */
public class Tools {
    private static final InheritableThreadLocal<Tool> CURRENT = new InheritableThreadLocal<>();

    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** The tools' own classes anew, since they count in static fields; clients and libraries are shared. */
    private static final class OwnStatics extends ClassLoader {
        OwnStatics() {
            super(Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") || name.startsWith("org.apache.kafka.tools.api.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found == null ? define(name) : found;
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
        final ClassLoader loader = new OwnStatics();
        final InputStream in;
        final String mainClass;
        final String[] arguments;
        Integer exitCode;
        volatile boolean leaving;
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
            leaving = false;
            shutdown();
            exit(0);
        }

        /** Where a process would have ended, a main method may catch what ends it here, and go on to talk about it. */
        boolean isHeard() {
            return !(leaving && Thread.currentThread() == thread);
        }

        /** The first code counts, as that of a process would. */
        synchronized boolean exit(int code) {
            boolean first = exitCode == null;
            exitCode = first ? code : exitCode;
            return first;
        }

        /** What was meant for the end of the process. */
        void shutdown() {
            try {
                takeHooksOfTheRuntime();
                hooks.forEach(Runnable::run);
            } catch (Exception failed) {
                failed.printStackTrace(new PrintStream(err, true));
            }
        }

        /** Some tools go past Exit; threads that they made know their class loader. */
        private void takeHooksOfTheRuntime() throws ReflectiveOperationException {
            Class<?> registry = Class.forName("java.lang.ApplicationShutdownHooks");
            Field field = registry.getDeclaredField("hooks");
            field.setAccessible(true);
            synchronized (registry) {
                for (Object each : List.copyOf(((Map<?, ?>) field.get(null)).keySet())) {
                    Thread hook = (Thread) each;
                    if (hook.getContextClassLoader() == loader) {
                        Runtime.getRuntime().removeShutdownHook(hook);
                        hooks.add(hook::run);
                    }
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(new PrintStream(own(false), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(own(true), true, StandardCharsets.UTF_8));
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
        answers.println("ok");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                run(line.split("\t", -1), tools, answers);
                answers.println("ok");
            } catch (Throwable failed) {
                answers.println("error\t" + failed.getClass().getSimpleName() + "\t" + failed);
            }
        }
        System.exit(0);
    }

    private static void leave(int code) {
        Tool tool = CURRENT.get();
        tool.exit(code);
        tool.leaving = Thread.currentThread() == tool.thread;
        throw new Exited();
    }

    private static OutputStream own(boolean errors) {
        return new OutputStream() {
            @Override
            public void write(int one) {
                write(new byte[] {(byte) one}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int offset, int length) {
                Tool tool = CURRENT.get();
                if (tool != null && tool.isHeard()) {
                    (errors ? tool.err : tool.out).write(bytes, offset, length);
                }
            }
        };
    }

    private static void run(String[] command, Map<String, Tool> tools, PrintStream answers) throws Exception {
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
                print(tool, answers);
            }
            default -> throw new IllegalArgumentException(command[0]);
        }
    }

    private static void print(Tool tool, PrintStream answers) {
        Base64.Encoder encoder = Base64.getEncoder();
        answers.println("output\t" + tool.exitCode + "\t" + encoder.encodeToString(tool.out.toByteArray()) + "\t"
                + encoder.encodeToString(tool.err.toByteArray()));
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
