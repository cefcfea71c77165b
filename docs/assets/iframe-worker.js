// Browsers start no worker for a page that was opened as a file, so the search of such a page runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.url = url
      this.onmessage = this.onerror = null
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      const address = String(url).replace(/&/g, "&amp;").replace(/"/g, "&quot;")
      frame.srcdoc = "<html><body><script>" +
        "window.postMessage = data => parent.dispatchEvent(new MessageEvent('message', {data, source: window}));" +
        "window.importScripts = () => {}" +
        "</" + `script><script src="${address}"></` + "script></body></html>"
      window.addEventListener("message", event => {
        if (event.source !== frame.contentWindow) return
        const received = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(received)
        if (this.onmessage) this.onmessage(received)
      })
      frame.addEventListener("load", () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
      this.frame = frame
      document.body.append(frame)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
